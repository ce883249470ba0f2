//! The unwind tables: where functions begin and end, and where the CFA is `rsp + 8`.
//!
//! The compiler writes these tables beside the code, so they are a second witness to what decoding shows. They are
//! found through `PT_GNU_EH_FRAME`, as the unwinder finds them, which works in libraries without section headers too;
//! the sections are the fallback.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, LittleEndian, Register,
    UnwindContext, UnwindSection as _,
};

/// Entries that are read of one file: far more than the largest library has.
const MAX_ENTRIES: usize = 1 << 20;
/// Rows that are read of one function.
const MAX_ROWS: usize = 1 << 14;
/// DWARF number of `rsp`.
const RSP: Register = Register(7);

/// A function, or a part of one, as the tables describe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    /// Address in the image of its first byte.
    pub start: u64,
    /// Address past its last byte.
    pub end: u64,
    entry: usize,
}

impl Extent {
    /// Its size in bytes.
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether `address` is in it.
    pub const fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The canonical frame address in a range of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cfa {
    /// `rsp` plus so many bytes. 8: `rsp` points at the return address.
    Stack(i64),
    /// Another register plus something: `rbp` in a frame that is set up.
    Frame,
    /// An expression, or not said.
    Unknown,
}

/// A range of code with one frame address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    start: u64,
    end: u64,
    cfa: Cfa,
}

/// The frame addresses of one function.
#[derive(Default)]
pub(super) struct Rows(Vec<Row>);

impl Rows {
    /// The frame address at `address`.
    pub fn cfa(&self, address: u64) -> Cfa {
        // The rows are sorted, and do not overlap.
        let after = self.0.partition_point(|row| row.start <= address);
        self.0[..after].last().filter(|row| address < row.end).map_or(Cfa::Unknown, |row| row.cfa)
    }
}

/// The unwind tables of one file.
#[derive(Default)]
pub(super) struct Unwind {
    address: u64,
    bytes: Vec<u8>,
    /// Sorted by start.
    extents: Vec<Extent>,
}

impl Unwind {
    /// Reads the tables: `bytes` are those of `.eh_frame`, which is at `address` in the image.
    ///
    /// Reading ends at the first entry that makes no sense: the entries before it are good.
    pub fn new(address: u64, bytes: Vec<u8>) -> Self {
        let mut unwind = Self { address, bytes, extents: Vec::new() };
        unwind.extents = unwind.read_extents();
        unwind.extents.sort_unstable_by_key(|extent| (extent.start, extent.end));
        unwind
    }

    fn section(&self) -> EhFrame<EndianSlice<'_, LittleEndian>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.address)
    }

    fn read_extents(&self) -> Vec<Extent> {
        let (section, bases) = (self.section(), self.bases());
        let mut extents = Vec::new();
        let mut last_cie = None;
        let mut entries = section.entries(&bases);
        for _ in 0..MAX_ENTRIES {
            let Ok(Some(entry)) = entries.next() else { break };
            let CieOrFde::Fde(partial) = entry else { continue };
            // Neighbours share their common entry: parsing it once gives most of the speed.
            let parsed = partial.parse(|section, bases, offset| match &last_cie {
                Some((at, cie)) if *at == offset => Ok(gimli::CommonInformationEntry::clone(cie)),
                _ => {
                    let cie = section.cie_from_offset(bases, offset)?;
                    last_cie = Some((offset, cie.clone()));
                    Ok(cie)
                }
            });
            let Ok(fde) = parsed else { break };
            let start = fde.initial_address();
            if let Some(end) = start.checked_add(fde.len()).filter(|end| *end > start) {
                extents.push(Extent { start, end, entry: fde.offset() });
            }
        }
        extents
    }

    /// The extent that contains `address`; the last to begin, if there are several.
    pub fn covering(&self, address: u64) -> Option<Extent> {
        let after = self.extents.partition_point(|extent| extent.start <= address);
        self.extents[..after].last().copied().filter(|extent| extent.contains(address))
    }

    /// The frame addresses within `extent`.
    pub fn rows(&self, extent: Extent) -> Rows {
        self.read_rows(extent).unwrap_or_default()
    }

    fn read_rows(&self, extent: Extent) -> Option<Rows> {
        let (section, bases) = (self.section(), self.bases());
        let fde = section
            .fde_from_offset(&bases, EhFrameOffset(extent.entry), |s, b, o| s.cie_from_offset(b, o))
            .ok()?;
        let mut context = UnwindContext::new();
        let mut table = fde.rows(&section, &bases, &mut context).ok()?;
        let mut rows = Vec::new();
        while rows.len() < MAX_ROWS {
            let Ok(Some(row)) = table.next_row() else { break };
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register: RSP, offset } => Cfa::Stack(*offset),
                CfaRule::RegisterAndOffset { .. } => Cfa::Frame,
                CfaRule::Expression(_) => Cfa::Unknown,
            };
            rows.push(Row { start: row.start_address(), end: row.end_address(), cfa });
        }
        Some(Rows(rows))
    }
}
