//! The loaded programs, their maps and their links.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use libbpf_rs::{
    ErrorKind, Map, MapCore as _, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenMapMut,
    ProgramAttachType, ProgramMut, btf::Btf, libbpf_sys::BPF_F_NO_PREALLOC,
};
use tracer_common::bpf::{
    ApiRecord, Capture, Config, Cookie, Header, NEAR_THREADS, PlaceOffsets, ProbePlace,
    StackOffsets, ThreadState, flag, follow, phase,
};
use tracer_common::loss::BpfLoss;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{ProbeError, interface::PlacingInterface, messages, numbers::Numbers, structures, sys};
use crate::{discover::FileId, placing::Placing, privileges};

/// The programs that were built in; empty if none were.
static BUILT_IN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/roctap.bpf.o"));

/// Checks that this `roctap` has the programs. To be called before anything else that recording needs: without them, no
/// privilege and no other kernel helps.
///
/// # Errors
///
/// When it was built without them.
pub fn built() -> Result<(), ProbeError> {
    object().map(drop)
}

/// The compiled programs. A debug build without them loads the file that `ROCTAP_BPF_OBJECT` names when it runs.
fn object() -> Result<Cow<'static, [u8]>, ProbeError> {
    if !BUILT_IN.is_empty() {
        return Ok(BUILT_IN.into());
    }
    let named = std::env::var_os("ROCTAP_BPF_OBJECT");
    let named = named.filter(|path| cfg!(debug_assertions) && !path.is_empty());
    let path = named.ok_or(ProbeError::NotBuilt)?;
    match fs::read(&path) {
        Ok(object) => Ok(object.into()),
        Err(cause) => Err(ProbeError::Object { path: path.into(), cause }),
    }
}

/// The most reads of the state of a running thread, until two of them are the same.
const READS: usize = 8;

/// The number of threads beside the near ones whose states find room if their map gets all its memory at once, 2.3 KiB
/// each.
const FAR_THREADS: u32 = 4096;

/// The processes whose forks, executed programs and ends are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Follow {
    /// Traced processes.
    Nobody = follow::NOBODY,
    /// Traced processes and their children.
    Children = follow::CHILDREN,
    /// The same, and every process that executes a program.
    Everyone = follow::EVERYONE,
}

/// How the programs are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes of each CPU's ring buffer, a power of two of at least a page.
    pub ring_bytes: u32,
    /// The processes whose forks, executed programs and ends are reported.
    pub follow: Follow,
    /// How probes are placed; if not given, in the best way that the kernel has.
    pub placing: Option<Placing>,
    /// Whether hash maps get all their memory at once; if not given, where the kernel needs it.
    pub preallocate: Option<bool>,
}

impl Settings {
    /// The settings that the kernel needs, and the best that it has.
    pub const fn new(ring_bytes: u32, follow: Follow) -> Self {
        Self { ring_bytes, follow, placing: None, preallocate: None }
    }
}

/// The loaded BPF programs.
pub struct Programs {
    object: Object,
    rings: Vec<MapHandle>,
    config: Config,
    settings: Settings,
    pub(super) interface: PlacingInterface,
    numbers: Numbers,
}

impl Programs {
    /// Loads the programs and creates their rings.
    ///
    /// # Errors
    ///
    /// When they were not built in, or the kernel refuses them.
    pub fn load(settings: Settings) -> Result<Self, ProbeError> {
        let object = object()?;
        privileges::check()?;
        messages::keep();
        let failed = |doing| move |cause| ProbeError::load(doing, cause);
        let task = Btf::from_vmlinux()
            .and_then(|btf| structures::task(&btf).map(|offsets| (btf, offsets)));
        let (btf, task) = task.map_err(failed("reading the kernel's BTF"))?;
        let interface = PlacingInterface::of(settings.placing)?;
        privileges::check_placing(interface.placing())?;
        let by_place = interface.placing() != Placing::Multi;
        let stack = match interface {
            PlacingInterface::Multi { sessions: true } => {
                structures::stack(&btf).map_err(failed("looking for stacks in the kernel's BTF"))?
            }
            _ => StackOffsets::default(),
        };
        let place = match by_place {
            true => structures::place(&btf)
                .map_err(failed("looking for uprobes in the kernel's BTF"))?,
            false => PlaceOffsets::default(),
        };
        let mut open = ObjectBuilder::default()
            .name("roctap")
            .and_then(|builder| builder.open_memory(&object))
            .map_err(failed("reading the programs"))?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed("counting CPUs"))?;
        let preallocate =
            settings.preallocate.unwrap_or_else(|| !structures::can_allocate_in_probes(&btf));
        for mut map in open.maps_mut() {
            size(&mut map, cpus as u32, preallocate).map_err(failed("sizing the maps"))?;
        }
        for mut program in open.progs_mut() {
            let is_used = interface.uses(&program.name().to_string_lossy());
            program.set_autoload(is_used);
        }
        if by_place {
            for mut program in open.progs_mut() {
                if program.section().to_string_lossy().contains(".multi") {
                    // Attach type 0 is an ordinary uprobe; libbpf's crate has this name for the number.
                    program.set_attach_type(ProgramAttachType::CgroupInetIngress);
                }
            }
        }
        let object = open.load().map_err(failed("loading the programs into the kernel"))?;
        let mut programs = Self {
            object,
            rings: Vec::new(),
            config: Config {
                cpus: cpus as u64,
                wake_mark_bytes: u64::from(settings.ring_bytes / 4),
                tgid_offset: task.tgid,
                signal_offset: task.signal,
                signal_flags_offset: task.signal_flags,
                stack,
                place,
                phase: phase::ATTACHING,
                follow: settings.follow as u32,
                by_place: by_place.into(),
                reserved: 0,
            },
            settings,
            interface,
            numbers: Numbers::default(),
        };
        programs.create_rings(cpus).map_err(failed("creating the ring buffers"))?;
        programs.write_config()?;
        Ok(programs)
    }

    fn create_rings(&mut self, cpus: usize) -> libbpf_rs::Result<()> {
        for cpu in 0..cpus as u32 {
            let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
                ..Default::default()
            };
            let name = Some(format!("roctap_ring{cpu}"));
            let ring = MapHandle::create(
                MapType::RingBuf,
                name,
                0,
                0,
                self.settings.ring_bytes,
                &options,
            )?;
            self.rings.push(ring);
        }
        let keys: Vec<_> = (0..cpus as u32).map(u32::to_ne_bytes).collect();
        let descriptors = self.rings.iter().map(|ring| ring.as_fd().as_raw_fd().to_ne_bytes());
        let descriptors: Vec<_> = descriptors.collect();
        let map = self.map("RINGS");
        // After each call the kernel waits some 10 ms for readers of the old value (before 6.8 also in the call, for
        // each ring).
        let (all_keys, all) = (keys.as_flattened(), descriptors.as_flattened());
        if map.update_batch(all_keys, all, cpus as u32, MapFlags::ANY, MapFlags::ANY).is_ok() {
            return Ok(());
        }
        // Before kernel 5.19 the rings are set one after the other.
        let mut each = keys.iter().zip(&descriptors);
        each.try_for_each(|(key, descriptor)| map.update(key, descriptor, MapFlags::ANY))
    }

    /// How probes are placed.
    pub fn placing(&self) -> Placing {
        self.interface.placing()
    }

    /// How many instructions the kernel verified to load each program, by the program's name; 0 if it does not say
    /// (before Linux 5.16).
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn verified_instructions(&self) -> io::Result<BTreeMap<String, u32>> {
        let counted = |program: libbpf_rs::ProgramMut<'_>| {
            let name = program.name().to_string_lossy().into_owned();
            Ok((name, sys::verified_instructions(program.as_fd())?))
        };
        self.object.progs_mut().filter(|program| program.autoload()).map(counted).collect()
    }

    /// The rings, one per CPU.
    pub(super) fn rings(&self) -> &[MapHandle] {
        &self.rings
    }

    /// Panics only if the object lacks a map that this module and the BPF crate both name.
    pub(super) fn map(&self, name: &str) -> Map<'_> {
        // SANITY: the names are constants that the object embedded above defines.
        self.object.maps().find(|m| m.name() == name).expect("map of the embedded object")
    }

    pub(super) fn program(&self, name: &str) -> ProgramMut<'_> {
        // SANITY: as in `map`.
        self.object.progs_mut().find(|p| p.name() == name).expect("program of the embedded object")
    }

    /// The cookie of a probe of process `pid` at `offset` of a file, whose calls are captured by `capture`.
    ///
    /// # Errors
    ///
    /// When there are too many functions.
    pub(super) fn cookie(
        &self,
        pid: u32,
        file: FileId,
        offset: u64,
        capture: Capture,
    ) -> Result<Cookie, ProbeError> {
        let word = capture.to_u64().to_ne_bytes();
        let (map, key, index) = match self.interface.placing() {
            Placing::Multi => {
                let index = self.numbers.of_capture(capture);
                ("CAPTURES", index.to_ne_bytes().to_vec(), index)
            }
            Placing::Event => {
                let index = self.numbers.of_file(file);
                let place = ProbePlace { file: index.into(), offset };
                ("PLACES", place.as_bytes().to_vec(), index)
            }
        };
        let written = self.map(map).update(&key, &word, MapFlags::ANY);
        written.map_err(|cause| ProbeError::Map { map, cause })?;
        Ok(Cookie { pid, index })
    }

    fn write_config(&self) -> Result<(), ProbeError> {
        let config = self.config;
        self.map("CONFIG")
            .update(&0u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
            .map_err(|cause| ProbeError::Map { map: "CONFIG", cause })
    }

    /// Sets how a return without an entry counts from now on: one of [`tracer_common::bpf::phase`].
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn set_phase(&mut self, phase: u32) -> Result<(), ProbeError> {
        self.config.phase = phase;
        self.write_config()
    }

    /// Reports forks and exec of process `pid` from now on.
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn track(&self, pid: u32) -> Result<(), ProbeError> {
        let (key, value) = (pid.to_ne_bytes(), 0u32.to_ne_bytes());
        match self.map("PROCESSES").update(&key, &value, MapFlags::NO_EXIST) {
            // The programs have seen its fork, and know more about it.
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                Err(ProbeError::Map { map: "PROCESSES", cause })
            }
            _ => Ok(()),
        }
    }

    /// Forgets process `pid`, which has ended: another process can get its number.
    pub fn forget(&self, pid: u32) {
        // The process is not in the maps if its creation could not be noted.
        for map in ["PROCESSES", "SHIMS"] {
            let _ = self.map(map).delete(&pid.to_ne_bytes());
        }
    }

    /// How many records the programs could not make so far, by [`BpfLoss`].
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn losses(&self) -> Result<[u64; BpfLoss::COUNT], ProbeError> {
        let map = self.map("LOSSES");
        let mut sums = [0; BpfLoss::COUNT];
        for (cause, sum) in sums.iter_mut().enumerate() {
            let values = map
                .lookup_percpu(&(cause as u32).to_ne_bytes(), MapFlags::ANY)
                .map_err(|cause| ProbeError::Map { map: "LOSSES", cause })?;
            *sum = values
                .iter()
                .flatten()
                .map(|v| u64::read_from_bytes(v.as_slice()).unwrap_or(0))
                .sum();
        }
        Ok(sums)
    }

    /// The calls that thread `tid` has open now, outermost first, with [`flag::OPEN_AT_END`].
    pub fn open_on(&self, tid: u32) -> Vec<ApiRecord> {
        let near = (tid % NEAR_THREADS as u32).to_ne_bytes();
        let read =
            |map: &str, key: [u8; 4]| self.map(map).lookup(&key, MapFlags::ANY).ok().flatten();
        let look = |map: &str, key: [u8; 4]| {
            let mut value = read(map, key)?;
            // The thread may run meanwhile: two reads that are the same are whole.
            for _ in 0..READS {
                let again = read(map, key)?;
                if core::mem::replace(&mut value, again) == value {
                    break;
                }
            }
            ThreadState::read_from_bytes(&value).ok().filter(|thread| thread.tid == tid)
        };
        let thread = look("NEAR", near).or_else(|| look("THREADS", tid.to_ne_bytes()));
        thread.iter().flat_map(open_in).collect()
    }

    /// The calls that are open now, outermost first for each thread, with [`flag::OPEN_AT_END`].
    pub fn open_calls(&self) -> Vec<ApiRecord> {
        let (near, far) = (self.map("NEAR"), self.map("THREADS"));
        let near_values = (0..NEAR_THREADS as u32)
            .filter_map(|index| near.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        let far_values =
            far.keys().filter_map(|key| far.lookup(&key, MapFlags::ANY).ok().flatten());
        let threads = near_values.chain(far_values);
        let threads = threads.filter_map(|value| ThreadState::read_from_bytes(&value).ok());
        threads.flat_map(|thread| open_in(&thread).collect::<Vec<_>>()).collect()
    }
}

/// Sizes a map for this machine.
fn size(map: &mut OpenMapMut<'_>, cpus: u32, preallocate: bool) -> libbpf_rs::Result<()> {
    if map.name() == "RINGS" {
        map.set_max_entries(cpus)?;
    }
    if preallocate && map.map_flags() & BPF_F_NO_PREALLOC != 0 {
        map.set_map_flags(map.map_flags() & !BPF_F_NO_PREALLOC)?;
        if map.name() == "THREADS" {
            map.set_max_entries(FAR_THREADS)?;
        }
    }
    Ok(())
}

/// The open calls of a thread, except those that the shim makes.
fn open_in(thread: &ThreadState) -> impl Iterator<Item = ApiRecord> {
    let records = thread.open.iter().take(thread.depth as usize).map(|open| open.record);
    let own = records.filter(|record| record.header.flags & flag::SHIM == 0);
    own.map(|record| ApiRecord {
        header: Header { flags: record.header.flags | flag::OPEN_AT_END, ..record.header },
        end_ns: 0,
        ret: 0,
        ..record
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_programs_one_line_names_the_command() {
        if !BUILT_IN.is_empty() {
            // They are built in, as in release builds: there is no message to check.
            assert!(built().is_ok());
            return;
        }
        let settings = Settings::new(4096, Follow::Nobody);
        let said = Programs::load(settings).err().expect("loaded a stub").to_string();
        assert!(said.contains("`cargo xtask build-ebpf`"), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
}
