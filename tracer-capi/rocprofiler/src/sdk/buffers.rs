//! Buffers are made, and the threads that call their callbacks.

use tracer_hooks::sys::PAGE_BYTES;

use super::{Sdk, stage};
use crate::buffer::{Buffer, Consumer, Policy, Properties};
use crate::status::{Result, Status};
use crate::threads::{CallbackThread, ROCPROFILER_LIBRARY};

impl Sdk {
    /// Makes a buffer, whose size is rounded up to pages.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`]; [`Status::ContextNotFound`]; [`Status::InvalidArgument`] for one without a byte;
    /// [`Status::OutOfResources`]; [`Status::Error`] if there is no thread for it.
    pub fn create_buffer(
        &self,
        context: u64,
        bytes: usize,
        watermark: usize,
        policy: Policy,
        consumer: impl FnOnce(u64) -> Consumer,
    ) -> Result<u64> {
        let client = self.configure()?.context(context)?.client;
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(Status::OutOfResources)?;
        let thread = self.callback_thread(0)?;
        let mut configuration = self.configure()?;
        let id = configuration.next_buffer();
        let consumer = consumer(id);
        let properties = Properties { id, bytes, watermark, policy, consumer, thread };
        configuration.buffers.push((Buffer::new(properties)?, client));
        Ok(id)
    }

    /// A buffer by its id.
    ///
    /// # Errors
    ///
    /// [`Status::BufferNotFound`].
    pub fn buffer(&self, id: u64) -> Result<&'static Buffer> {
        self.lock()?.buffer(id)
    }

    /// All buffers of a client.
    pub fn buffers(&self, client: u32) -> Vec<&'static Buffer> {
        let Ok(configuration) = self.lock() else { return Vec::new() };
        let own = configuration.buffers.iter().filter(|(_, of)| *of == client);
        own.map(|&(buffer, _)| buffer).collect()
    }

    /// Starts a thread for callbacks; its id.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`] after the initialization; [`Status::Error`] if the system starts none.
    pub fn create_callback_thread(&self) -> Result<u64> {
        if self.initialized() == stage::OVER {
            return Err(Status::ConfigurationLocked);
        }
        self.callback_thread(0)?;
        self.start_thread()
    }

    /// Has the callback of a buffer called on a thread.
    ///
    /// # Errors
    ///
    /// [`Status::ConfigurationLocked`] after the initialization; [`Status::ThreadNotFound`];
    /// [`Status::BufferNotFound`].
    pub fn assign_callback_thread(&self, buffer: u64, thread: u64) -> Result {
        if self.initialized() == stage::OVER {
            return Err(Status::ConfigurationLocked);
        }
        let known = self.lock()?.threads.len();
        let at = usize::try_from(thread).ok().filter(|&at| at < known);
        let thread = self.callback_thread(at.ok_or(Status::ThreadNotFound)?)?;
        self.lock()?.buffer(buffer)?.assign(thread);
        Ok(())
    }

    /// A callback thread; the first one is started when it is asked for, and anew those that were left behind by a fork.
    fn callback_thread(&self, id: usize) -> Result<&'static CallbackThread> {
        let known = || -> Result<_> { Ok(self.lock()?.threads.get(id).copied()) };
        match known()? {
            None if id == 0 => _ = self.start_thread()?,
            Some(thread) if !thread.is_there() => {
                let started = self.start()?;
                if let Some(place) = self.lock()?.threads.get_mut(id) {
                    *place = started;
                }
            }
            _ => {}
        }
        known()?.ok_or(Status::ThreadNotFound)
    }

    fn start_thread(&self) -> Result<u64> {
        let started = self.start()?;
        let mut configuration = self.lock()?;
        configuration.threads.push(started);
        Ok(configuration.threads.len() as u64 - 1)
    }

    /// Not under the lock: who watches threads is told.
    fn start(&self) -> Result<&'static CallbackThread> {
        self.watchers.around(ROCPROFILER_LIBRARY, CallbackThread::start)
    }
}
