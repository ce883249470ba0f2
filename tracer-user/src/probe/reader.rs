//! Drains the rings.

use std::{cell::RefCell, rc::Rc, time::Duration};

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use super::{ProbeError, Programs};

/// Takes records out of the rings of all CPUs.
pub struct Reader {
    rings: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<u8>>>,
}

impl Reader {
    /// A reader of the programs' rings.
    ///
    /// # Errors
    ///
    /// When the rings cannot be mapped.
    pub fn new(programs: &Programs) -> Result<Self, ProbeError> {
        let failed = |source| ProbeError::Map { map: "RINGS", source };
        let taken = Rc::new(RefCell::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        for ring in programs.rings() {
            let taken = Rc::clone(&taken);
            builder
                .add(ring, move |record| {
                    taken.borrow_mut().extend_from_slice(record);
                    0
                })
                .map_err(failed)?;
        }
        Ok(Self { rings: builder.build().map_err(failed)?, taken })
    }

    /// Waits until a ring crosses its mark or `timeout` passes, then takes everything. The records
    /// stand one behind the other; each tells its kind, which tells its size.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    pub fn take(&self, timeout: Duration) -> Result<Vec<u8>, ProbeError> {
        let failed = |source| ProbeError::Map { map: "RINGS", source };
        match self.rings.poll(timeout) {
            Err(e) if e.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            result => result.map_err(failed)?,
        }
        // The timer's part: nobody was woken for what lies below the mark.
        self.rings.consume().map_err(failed)?;
        Ok(std::mem::take(&mut *self.taken.borrow_mut()))
    }
}
