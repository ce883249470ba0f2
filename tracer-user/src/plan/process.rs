//! A running process's memory: its mappings, and the tables that the stubs of its libraries read.

use std::{
    ffi::OsStr,
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::{
    binary::{Binary, Identity, PlanError, file_name},
    model::{OutsideCode, Slot},
};
use crate::{
    clock,
    foreign::{Access, Map, Maps, TargetMemory},
};

/// A process whose memory can be read.
pub trait ProcessMemory {
    /// Fills `buffer` from `address` on.
    ///
    /// # Errors
    ///
    /// When not all of it can be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The 64-bit word at `address`; none when it cannot be read.
    fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// Whether a read failed because the look reached a limit; another look may succeed.
    fn was_cut_short(&self) -> bool {
        false
    }

    /// The mappings, as they were when the process was opened.
    fn mappings(&self) -> &[Mapping];

    /// The executable mapping that holds `address`.
    fn code_at(&self, address: u64) -> Option<&Mapping> {
        let holds = |m: &&Mapping| m.executable && m.start <= address && address < m.end;
        self.mappings().iter().find(holds)
    }
}

/// A range of a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address past the last.
    pub end: u64,
    /// Offset in its file at which it begins.
    pub file_offset: u64,
    /// Whether it can be executed.
    pub executable: bool,
    /// Its file; none for anonymous memory.
    pub file: Option<MappedFile>,
}

impl Mapping {
    /// Whether this is a mapping of the file of `binary`.
    pub(crate) fn is_of(&self, binary: &Binary) -> bool {
        let file = self.file.as_ref().zip(binary.identity());
        file.is_some_and(|(file, identity)| file.is(identity, binary.file_name()))
    }
}

/// The file behind a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    /// Path as the process sees it.
    pub path: PathBuf,
    /// The identity of the file.
    pub identity: Identity,
}

impl MappedFile {
    /// Compares device and inode. If the devices differ (overlay and btrfs report one to `stat` and another in
    /// `maps`), compares inode and file name.
    fn is(&self, identity: Identity, name: &OsStr) -> bool {
        self.identity == identity
            || self.identity.inode == identity.inode && file_name(&self.path) == name
    }
}

/// The longest time for which all reads of one look at a process wait for its memory ([`TargetMemory::waited`]).
/// Waiting for a CPU does not count.
const LOOK_FOR: Duration = Duration::from_secs(3);
/// The time by the clock that a look may take beyond that, on a busy machine: the thread that looks has other work.
const MORE_FOR: Duration = Duration::from_secs(30);
/// The most pieces that a look may read: they take some seconds of a CPU at most, however slow it is.
const MOST_PIECES: u64 = 1 << 17;
/// The most bytes that are read before the limits are checked again.
const PIECE_BYTES: usize = 256 << 10;

/// A process, through `/proc/PID/mem` and `/proc/PID/maps`. The process decides how long its lists are, and how
/// long each read takes. So the reads of a look have limits together: see [`LiveProcess::wait_at_most`].
pub struct LiveProcess {
    memory: TargetMemory,
    /// The time for which reads may still wait for the memory, ns.
    left_ns: AtomicU64,
    /// The time from which on reads fail, ns of CLOCK_BOOTTIME.
    until_ns: AtomicU64,
    /// How many pieces may still be read.
    left_pieces: AtomicU64,
    /// Whether a read failed because a limit was reached, or the memory did not answer in time.
    cut_short: AtomicBool,
    mappings: Vec<Mapping>,
}

impl LiveProcess {
    /// Opens process `pid`. Its mappings are read once: open it again after it has loaded a library.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it may not be read (this needs the permission to trace it).
    pub fn open(pid: u32) -> Result<Self, PlanError> {
        let memory = TargetMemory::open(pid, Access::Read);
        Self::with(memory.map_err(|cause| PlanError::Process { pid, cause })?, pid)
    }

    /// Process `pid`, whose memory is open already.
    ///
    /// # Errors
    ///
    /// As of [`LiveProcess::open`].
    pub fn with(memory: TargetMemory, pid: u32) -> Result<Self, PlanError> {
        let maps = Maps::of(pid).map_err(|cause| PlanError::Process { pid, cause })?;
        let mappings = maps.iter().map(Mapping::from).collect();
        let [left_ns, until_ns, left_pieces] = [0; 3].map(AtomicU64::new);
        let cut_short = AtomicBool::new(false);
        let process = Self { memory, left_ns, until_ns, left_pieces, cut_short, mappings };
        process.wait_at_most(LOOK_FOR);
        Ok(process)
    }

    /// Begins a look: from now on all reads together wait for `time` at most, and are limited in number and by the
    /// clock; after that, reads fail. The first look begins when the process is opened, and has a few seconds.
    pub fn wait_at_most(&self, time: Duration) {
        self.cut_short.store(false, Ordering::Relaxed);
        self.left_pieces.store(MOST_PIECES, Ordering::Relaxed);
        self.left_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
        let most_ns = (time + MORE_FOR).as_nanos() as u64;
        self.until_ns.store(clock::now_ns() + most_ns, Ordering::Relaxed);
    }

    /// Reads a piece, within the remaining limits of the look.
    fn read_piece(&self, piece: &mut [u8], at: u64) -> io::Result<()> {
        let (left_ns, left_pieces) =
            (self.left_ns.load(Ordering::Relaxed), self.left_pieces.load(Ordering::Relaxed));
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if left_ns == 0 || left_pieces == 0 || clock::now_ns() > until_ns {
            let text = "reading its memory takes too long";
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let before = self.memory.waited();
        let read = self.memory.read_exact_at(piece, at);
        let waited_ns = self.memory.waited().saturating_sub(before).as_nanos() as u64;
        self.left_ns.store(left_ns.saturating_sub(waited_ns), Ordering::Relaxed);
        self.left_pieces.store(left_pieces - 1, Ordering::Relaxed);
        read
    }

    /// The process's memory alone.
    pub fn into_memory(self) -> TargetMemory {
        self.memory
    }
}

impl From<Map<'_>> for Mapping {
    fn from(map: Map<'_>) -> Self {
        let file = map.path.map(|path| MappedFile {
            path: path.to_owned(),
            identity: Identity {
                device_major: map.device.0,
                device_minor: map.device.1,
                inode: map.inode,
            },
        });
        Self {
            start: map.range.start,
            end: map.range.end,
            file_offset: map.offset,
            executable: map.executable,
            file,
        }
    }
}

impl ProcessMemory for LiveProcess {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = address;
        for piece in buffer.chunks_mut(PIECE_BYTES) {
            if let Err(error) = self.read_piece(piece, at) {
                let cut_short = error.kind() == io::ErrorKind::TimedOut;
                self.cut_short.fetch_or(cut_short, Ordering::Relaxed);
                return Err(error);
            }
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    fn was_cut_short(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed)
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

/// Where a stub leads in a process.
pub(super) enum Destination {
    /// To code of the library itself, at this address of the image.
    Inside(u64),
    /// To other executable memory.
    Outside(OutsideCode),
    /// To no known place, for this reason.
    Nowhere(&'static str),
}

/// A library as a process has it mapped.
pub(super) struct Loaded<'a> {
    process: &'a dyn ProcessMemory,
    binary: &'a Binary,
    /// Address in the process minus address in the image.
    bias: u64,
}

impl<'a> Loaded<'a> {
    /// Finds `binary` in `process`.
    ///
    /// If it is mapped more than once (`dlmopen`), takes the first mapping: a probe belongs to the file, and fires in
    /// all of its mappings.
    pub fn find(process: &'a dyn ProcessMemory, binary: &'a Binary) -> Option<Self> {
        let bias = process.mappings().iter().find_map(|mapping| {
            let wanted = mapping.executable && mapping.is_of(binary);
            // Mappings begin at page boundaries, segments anywhere in a page.
            let segment = binary.segments().iter().find(|s| {
                s.executable && s.offset & !0xfff == mapping.file_offset && s.file_size > 0
            })?;
            let at_start = segment.address.wrapping_sub(segment.offset & 0xfff);
            wanted.then(|| mapping.start.wrapping_sub(at_start))
        })?;
        Some(Self { process, binary, bias })
    }

    /// Address in the process minus address in the image.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// Follows a stub's slot.
    pub fn follow(&self, slot: Slot) -> Destination {
        let (first, offset) = match slot {
            Slot::Variable { address } => (address, None),
            Slot::Table { pointer, offset } => (pointer, Some(offset)),
        };
        let Some(mut value) = self.process.word(self.bias.wrapping_add(first)) else {
            return Destination::Nowhere("the variable cannot be read in the process");
        };
        if let Some(offset) = offset {
            if value == 0 {
                return Destination::Nowhere("the process has not set up the table yet");
            }
            match self.process.word(value.wrapping_add(offset)) {
                Some(entry) => value = entry,
                None => return Destination::Nowhere("the table cannot be read in the process"),
            }
        }
        if value == 0 {
            return Destination::Nowhere("the table's entry is empty");
        }
        self.locate(value)
    }

    fn locate(&self, address: u64) -> Destination {
        let Some(mapping) = self.process.code_at(address) else {
            return Destination::Nowhere("the table's entry leads to no executable memory");
        };
        let offset = mapping.file_offset.checked_add(address - mapping.start);
        if mapping.is_of(self.binary) {
            let inside = offset.and_then(|offset| self.binary.address_of(offset));
            // The process may have written any address there, and a probe is in a file that other processes run, too:
            // it is placed only at the beginning of a function.
            return inside.filter(|&address| self.binary.begins_function(address)).map_or(
                Destination::Nowhere("the table's entry leads to no beginning of a function"),
                Destination::Inside,
            );
        }
        let path = mapping.file.as_ref().map(|file| file.path.clone());
        Destination::Outside(OutsideCode { path, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_has_an_end() {
        let process = LiveProcess::open(std::process::id()).unwrap();
        let bytes = vec![7u8; 3 * PIECE_BYTES + 5];
        let mut read = vec![0; bytes.len()];
        let mut look = || process.read(bytes.as_ptr() as u64, &mut read);
        look().unwrap();
        assert!(process.left_ns.load(Ordering::Relaxed) < LOOK_FOR.as_nanos() as u64);
        assert!(!process.was_cut_short());
        process.wait_at_most(Duration::from_nanos(1));
        assert_eq!(look().unwrap_err().kind(), io::ErrorKind::TimedOut, "between two pieces");
        assert!(process.was_cut_short());
        process.wait_at_most(LOOK_FOR);
        process.left_pieces.store(1, Ordering::Relaxed);
        assert_eq!(look().unwrap_err().kind(), io::ErrorKind::TimedOut, "after one piece");
        process.wait_at_most(LOOK_FOR);
        process.until_ns.store(clock::now_ns() - 1, Ordering::Relaxed);
        assert_eq!(look().unwrap_err().kind(), io::ErrorKind::TimedOut, "by any clock");
        process.wait_at_most(LOOK_FOR);
        look().unwrap();
        assert!(!process.was_cut_short());
        assert_eq!(read, bytes);
    }
}
