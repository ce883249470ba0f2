//! The loaded programs, their maps and their links.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, AsRawFd as _},
    path::{Path, PathBuf},
};

use libbpf_rs::{
    Link, Map, MapCore as _, MapFlags, MapHandle, MapType, Object, ObjectBuilder,
    ProgramAttachType, ProgramMut, UprobeMultiOpts, UprobeOpts,
    btf::{Btf, types::Struct},
};
use tracer_common::bpf::{
    ApiRecord, Config, Cookie, Header, Loss, NEAR_THREADS, ThreadState, flag, follow, phase,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::ProbeError;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/roctap.bpf.o"));

/// How often the state of a thread that runs is read at most, to read the same twice.
const READS: usize = 8;

/// Whose life is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Follow {
    /// That of traced processes.
    Nobody = follow::NOBODY,
    /// Their children's too.
    Children = follow::CHILDREN,
    /// Also of whoever executes a program.
    Everyone = follow::EVERYONE,
}

/// How to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes of each CPU's ring buffer, a power of two of at least a page.
    pub ring_bytes: u32,
    /// Whose life is reported.
    pub follow: Follow,
    /// Place all probes of a library in one call (kernel 6.6 and later).
    pub uprobe_multi: bool,
}

/// A place to probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The function.
    pub symbol: String,
    /// The file that the site is in, where that is not the library.
    pub file: Option<PathBuf>,
    /// Offset in the file of the probed instruction.
    pub file_offset: u64,
    /// What the programs are told.
    pub cookie: Cookie,
}

/// Probes that are in place; dropping it removes them.
///
/// Entries go first (fields are dropped in order): without a return probe, entries would pile up.
#[must_use]
#[derive(Debug, Default)]
pub struct Attachment {
    entries: Vec<Link>,
    _returns: Vec<Link>,
}

impl Attachment {
    /// Takes the entry probes out, to be removed: calls that are open may still return, but no new
    /// one is seen.
    pub fn take_entries(&mut self) -> Self {
        Self { entries: std::mem::take(&mut self.entries), _returns: Vec::new() }
    }

    /// Removes probes, those of several libraries at the same time: the kernel mostly waits.
    pub fn remove_all(attachments: impl IntoIterator<Item = Self>) {
        std::thread::scope(|scope| {
            for attachment in attachments {
                scope.spawn(move || drop(attachment));
            }
        });
    }
}

/// The loaded BPF programs.
pub struct Programs {
    object: Object,
    rings: Vec<MapHandle>,
    config: Config,
    settings: Settings,
}

impl Programs {
    /// Loads the programs and creates their rings.
    ///
    /// # Errors
    ///
    /// When they were not built in, or the kernel refuses them.
    pub fn load(settings: Settings) -> Result<Self, ProbeError> {
        if OBJECT.is_empty() {
            return Err(ProbeError::NotBuilt);
        }
        let failed = |doing| move |cause| ProbeError::Load { doing, cause };
        let tgid_offset = task_tgid_offset().map_err(failed("reading the kernel's BTF"))?;
        let mut open = ObjectBuilder::default()
            .name("roctap")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(failed("reading the programs"))?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed("counting CPUs"))?;
        for mut map in open.maps_mut() {
            if map.name() == "RINGS" {
                map.set_max_entries(cpus as u32).map_err(failed("sizing the rings"))?;
            }
        }
        if !settings.uprobe_multi {
            for mut program in open.progs_mut() {
                if program.section().to_string_lossy().contains(".multi") {
                    // Attach type 0: an ordinary uprobe, in libbpf's name for the number.
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
                tgid_offset,
                phase: phase::ATTACHING,
                follow: settings.follow as u32,
            },
            settings,
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
        // After each call the kernel waits some 10 ms for whoever may read the old value (before 6.8 also
        // in the call, for each ring).
        let (all_keys, all) = (keys.as_flattened(), descriptors.as_flattened());
        if map.update_batch(all_keys, all, cpus as u32, MapFlags::ANY, MapFlags::ANY).is_ok() {
            return Ok(());
        }
        // Before kernel 5.19 one after the other.
        let mut each = keys.iter().zip(&descriptors);
        each.try_for_each(|(key, descriptor)| map.update(key, descriptor, MapFlags::ANY))
    }

    /// Whether all probes of a library are placed and removed in one call.
    pub fn places_at_once(&self) -> bool {
        self.settings.uprobe_multi
    }

    /// The rings, one a CPU.
    pub(super) fn rings(&self) -> &[MapHandle] {
        &self.rings
    }

    /// Panics only if the object lacks a map that this module and the BPF crate both name.
    fn map(&self, name: &str) -> Map<'_> {
        // SANITY: the names are constants that the object embedded above defines.
        self.object.maps().find(|m| m.name() == name).expect("map of the embedded object")
    }

    fn program(&self, name: &str) -> ProgramMut<'_> {
        // SANITY: as in `map`.
        self.object.progs_mut().find(|p| p.name() == name).expect("program of the embedded object")
    }

    fn write_config(&self) -> Result<(), ProbeError> {
        let config = self.config;
        self.map("CONFIG")
            .update(&0u32.to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
            .map_err(|cause| ProbeError::Map { map: "CONFIG", cause })
    }

    /// Says what a return without an entry is from now on: one of [`tracer_common::bpf::phase`].
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
        self.map("PROCESSES")
            .update(&pid.to_ne_bytes(), &0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|cause| ProbeError::Map { map: "PROCESSES", cause })
    }

    /// Forgets process `pid`, which has ended: its number can be given to another.
    pub fn forget(&self, pid: u32) {
        // It is not there when its creation could not be noted.
        for map in ["PROCESSES", "SHIMS"] {
            let _ = self.map(map).delete(&pid.to_ne_bytes());
        }
    }

    /// Attaches the programs that follow processes and threads.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_life(&self) -> Result<Attachment, ProbeError> {
        let links = ["task_created", "task_executed", "task_ended"]
            .map(|name| self.program(name).attach())
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|cause| ProbeError::Load { doing: "attaching to process events", cause })?;
        Ok(Attachment { entries: links, _returns: Vec::new() })
    }

    /// Probes `sites` of the library at `path`, and of the other files that they name, in process
    /// `pid`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; nothing stays attached.
    pub fn attach(&self, pid: u32, path: &Path, sites: &[Site]) -> Result<Attachment, ProbeError> {
        self.attach_pair(["api_enter", "api_exit"], pid, path, sites)
    }

    /// Attaches the entry program to all sites and the return program to those that have one.
    fn attach_pair(
        &self,
        [enter, exit]: [&str; 2],
        pid: u32,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let mut files: BTreeMap<&Path, Vec<&Site>> = BTreeMap::new();
        for site in sites {
            files.entry(site.file.as_deref().unwrap_or(path)).or_default().push(site);
        }
        let mut placed = Attachment { entries: Vec::new(), _returns: Vec::new() };
        for (path, all) in files {
            let returning: Vec<&Site> =
                all.iter().copied().filter(|s| s.cookie.entry_only == 0).collect();
            placed._returns.extend(self.attach_sites(exit, "return", pid, path, &returning)?);
            placed.entries.extend(self.attach_sites(enter, "entry", pid, path, &all)?);
        }
        Ok(placed)
    }

    /// Probes `sites` with programs that do nothing: what the kernel alone costs, to measure against.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_floor(
        &self,
        pid: u32,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        self.attach_pair(["floor_enter", "floor_exit"], pid, path, sites)
    }

    /// Probes the shim's dispatch site at `file_offset` of the file at `path`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_dispatch_site(
        &self,
        pid: u32,
        path: &Path,
        file_offset: u64,
    ) -> Result<Attachment, ProbeError> {
        let site = Site {
            symbol: tracer_common::shim::DISPATCH_SITE.to_owned(),
            file: None,
            file_offset,
            cookie: Cookie::default(),
        };
        let entries = self.attach_sites("dispatch_site", "dispatch", pid, path, &[&site])?;
        Ok(Attachment { entries, _returns: Vec::new() })
    }

    /// Probes the functions by which process `pid` rings doorbells and destroys signals, to see its
    /// packets from outside.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_doorbells(
        &self,
        pid: u32,
        path: &Path,
        doorbells: &[Site],
        ends: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let attach = |program, what, sites: &[Site]| {
            let sites: Vec<&Site> = sites.iter().collect();
            self.attach_sites(program, what, pid, path, &sites)
        };
        let mut entries = attach("doorbell", "doorbell", doorbells)?;
        entries.extend(attach("signal_end", "signal", ends)?);
        Ok(Attachment { entries, _returns: Vec::new() })
    }

    fn attach_sites(
        &self,
        program: &str,
        what: &'static str,
        pid: u32,
        path: &Path,
        sites: &[&Site],
    ) -> Result<Vec<Link>, ProbeError> {
        if sites.is_empty() {
            return Ok(Vec::new());
        }
        let (multi, retprobe) = (self.settings.uprobe_multi, what == "return");
        let program = self.program(program);
        let links = if multi {
            let options = UprobeMultiOpts {
                offsets: sites.iter().map(|s| s.file_offset as usize).collect(),
                cookies: sites.iter().map(|s| s.cookie.to_u64()).collect(),
                retprobe,
                ..Default::default()
            };
            program.attach_uprobe_multi_with_opts(pid as i32, path, "", options).map(|l| vec![l])
        } else {
            sites
                .iter()
                .map(|site| {
                    let options =
                        UprobeOpts { cookie: site.cookie.to_u64(), retprobe, ..Default::default() };
                    program.attach_uprobe_with_opts(
                        pid as i32,
                        path,
                        site.file_offset as usize,
                        options,
                    )
                })
                .collect()
        };
        links.map_err(|cause| ProbeError::Attach {
            path: path.to_owned(),
            pid,
            count: sites.len(),
            what,
            cause,
        })
    }

    /// What the programs could not record so far, by [`Loss`].
    ///
    /// # Errors
    ///
    /// When the map cannot be read.
    pub fn losses(&self) -> Result<[u64; Loss::COUNT], ProbeError> {
        let map = self.map("LOSSES");
        let mut sums = [0; Loss::COUNT];
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
            // The thread may run meanwhile: what is read twice is whole.
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

/// The open calls of a thread but for those that the shim makes.
fn open_in(thread: &ThreadState) -> impl Iterator<Item = ApiRecord> {
    let records = thread.frames.iter().take(thread.depth as usize).map(|frame| frame.record);
    let own = records.filter(|record| record.header.flags & flag::SHIM == 0);
    own.map(|record| ApiRecord {
        header: Header { flags: record.header.flags | flag::OPEN_AT_END, ..record.header },
        end_ns: 0,
        ret: 0,
        ..record
    })
}

/// Offset of `tgid` in the running kernel's `task_struct`.
fn task_tgid_offset() -> libbpf_rs::Result<u64> {
    let btf = Btf::from_vmlinux()?;
    let missing = || libbpf_rs::Error::from_raw_os_error(2);
    let task: Struct<'_> = btf.type_by_name("task_struct").ok_or_else(missing)?;
    let member = task.iter().find(|m| m.name.is_some_and(|n| n == "tgid")).ok_or_else(missing)?;
    match member.attr {
        libbpf_rs::btf::types::MemberAttr::Normal { offset } => Ok(u64::from(offset) / 8),
        libbpf_rs::btf::types::MemberAttr::BitField { .. } => Err(missing()),
    }
}
