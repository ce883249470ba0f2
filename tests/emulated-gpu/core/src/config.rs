//! The settings: environment variables that start with `EMUGPU_`, read once.
//!
//! A value that cannot be read is named on stderr and its default is used, so that a typo in a test
//! shows up in the test's output.

use std::str::FromStr;

/// Most GPUs that one machine may have.
pub const MAX_GPUS: u32 = 4;

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// Targets, one for each GPU.
    pub archs: Vec<Arch>,
    /// Whether the host can reach all of the device's memory.
    pub large_bar: bool,
    /// Device memory of each GPU in bytes.
    pub vram_bytes: u64,
    /// Durations of kernels by name.
    pub durations: Durations,
    /// Duration of a barrier packet once its dependencies are met.
    pub barrier_ns: u64,
    /// Fixed part of a copy's duration.
    pub copy_ns: u64,
    /// Speed of copies and fills in bytes per microsecond.
    pub copy_bytes_per_us: u64,
    /// Kernels of one queue that may overlap when no barrier bit forbids it.
    pub overlap: usize,
    /// How long after the last doorbell a published packet beyond its value is taken all the same; 0:
    /// the packet processor takes what is published, whoever has rung for it.
    pub beyond_doorbell_ns: u64,
    /// Nominal GPU clock in Hz.
    pub clock_hz: u64,
    /// How long before CLOCK_BOOTTIME the GPU clocks started.
    pub clock_offset_ns: u64,
    /// Drift of the GPU clocks.
    pub clock_ppm: i64,
    /// Largest error of the GPU counter in the pairs that the runtime reads.
    pub clock_noise_ns: u64,
    /// Which of the process's readings of clock pairs are interrupted between the two clocks, counted from
    /// 1 on.
    pub clock_interrupted: Numbers,
    /// How long.
    pub clock_interrupted_ns: u64,
    /// Longest sleep between two looks at the doorbells.
    pub idle_poll_ns: u64,
    /// Shortest sleep between them while an operation runs, whose end is not slept past.
    pub working_poll_ns: u64,
    /// Whether the emulator's thread asks for real-time scheduling.
    pub real_time: bool,
    /// Where the ground truth goes; none when not wanted.
    pub log: Option<String>,
}

/// A GPU target such as gfx90a.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// Major version: 9 in gfx90a.
    pub major: u32,
    /// Minor version: 0 in gfx90a.
    pub minor: u32,
    /// Stepping: 10 in gfx90a.
    pub stepping: u32,
}

impl FromStr for Arch {
    type Err = String;

    /// Reads `gfx` + decimal major + one hexadecimal digit each of minor and stepping.
    fn from_str(s: &str) -> Result<Self, String> {
        let bad = || format!("{s:?} is not a target like gfx90a");
        let body = s
            .trim()
            .strip_prefix("gfx")
            .filter(|b| b.is_ascii() && b.len() >= 3)
            .ok_or_else(bad)?;
        let (major, rest) = body.split_at(body.len() - 2);
        let digit = |i: usize| u32::from_str_radix(&rest[i..=i], 16).map_err(|_| bad());
        let arch = Arch {
            major: major.parse().map_err(|_| bad())?,
            minor: digit(0)?,
            stepping: digit(1)?,
        };
        if matches!(arch.major, 9 | 10) {
            Ok(arch)
        } else {
            Err(format!("{s:?}: only gfx9 and gfx10 targets"))
        }
    }
}

impl Arch {
    /// Width in bits of the byte count in an SDMA linear copy or fill packet.
    pub fn sdma_count_bits(self) -> u32 {
        if (self.major, self.minor, self.stepping) == (9, 0, 10) || self.major >= 10 {
            30
        } else {
            22
        }
    }
}

/// Kernel durations by name pattern; the first match counts.
#[derive(Clone, Debug, Default)]
pub struct Durations(Vec<(String, u64)>);

/// Duration of a kernel that no pattern names.
const DEFAULT_KERNEL_NS: u64 = 2_000;

impl FromStr for Durations {
    type Err = String;

    /// Reads `pattern=ns,pattern=ns`.
    fn from_str(s: &str) -> Result<Self, String> {
        let entry = |e: &str| {
            let (glob, ns) =
                e.rsplit_once('=').ok_or_else(|| format!("{e:?} is not pattern=ns"))?;
            Ok((
                glob.trim().to_owned(),
                ns.trim().parse().map_err(|_| format!("{ns:?} is not a number"))?,
            ))
        };
        s.split(',').filter(|e| !e.trim().is_empty()).map(entry).collect::<Result<_, _>>().map(Self)
    }
}

impl Durations {
    /// How long a kernel of that name runs.
    pub fn of(&self, name: &str) -> u64 {
        let hit = self.0.iter().find(|(glob, _)| matches_glob(glob.as_bytes(), name.as_bytes()));
        hit.map_or(DEFAULT_KERNEL_NS, |&(_, ns)| ns)
    }
}

/// `*` stands for any run of bytes, all else for itself.
fn matches_glob(glob: &[u8], name: &[u8]) -> bool {
    match glob.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|i| matches_glob(rest, &name[i..])),
        Some((c, rest)) => {
            name.split_first().is_some_and(|(n, tail)| n == c && matches_glob(rest, tail))
        }
    }
}

/// Some numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<u64>);

impl FromStr for Numbers {
    type Err = String;

    /// Reads `number,number`.
    fn from_str(s: &str) -> Result<Self, String> {
        let number = |n: &str| n.trim().parse().map_err(|_| format!("{n:?} is not a number"));
        s.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

impl Numbers {
    /// Whether `number` is one of them.
    pub fn contains(&self, number: u64) -> bool {
        self.0.contains(&number)
    }
}

impl Config {
    /// Reads the environment.
    pub fn from_env() -> Self {
        let count: u32 = get("EMUGPU_COUNT", 1).clamp(1, MAX_GPUS);
        let default_arch = Arch { major: 9, minor: 0, stepping: 0 };
        let listed: Vec<Arch> = std::env::var("EMUGPU_ARCH")
            .unwrap_or_default()
            .split(',')
            .filter(|s| !s.trim().is_empty())
            .map(|s| s.parse().unwrap_or_else(|e| complain("EMUGPU_ARCH", &e, default_arch)))
            .collect();
        let last = listed.last().copied().unwrap_or(default_arch);
        let archs = (0..count as usize).map(|i| listed.get(i).copied().unwrap_or(last)).collect();
        Config {
            archs,
            large_bar: get("EMUGPU_LARGE_BAR", 0_u8) != 0,
            vram_bytes: get("EMUGPU_VRAM_MB", 8192_u64).clamp(64, 1 << 18) << 20,
            durations: get("EMUGPU_KERNEL_NS", Durations::default()),
            barrier_ns: get("EMUGPU_BARRIER_NS", 400),
            copy_ns: get("EMUGPU_COPY_NS", 1_000),
            copy_bytes_per_us: get("EMUGPU_COPY_MBPS", 16_000_u64).max(1),
            overlap: get("EMUGPU_OVERLAP", 8_usize).max(1),
            beyond_doorbell_ns: get("EMUGPU_BEYOND_DOORBELL_MS", 1_000_u64).min(60_000) * 1_000_000,
            clock_hz: get("EMUGPU_CLOCK_HZ", 100_000_000_u64).clamp(1_000_000, 4_000_000_000),
            clock_offset_ns: get("EMUGPU_CLOCK_OFFSET_NS", 7_777_777_777_777),
            clock_ppm: get("EMUGPU_CLOCK_PPM", 0_i64).clamp(-100_000, 100_000),
            clock_noise_ns: get("EMUGPU_CLOCK_NOISE_NS", 0),
            clock_interrupted: get("EMUGPU_CLOCK_INTERRUPTED", Numbers::default()),
            clock_interrupted_ns: get("EMUGPU_CLOCK_INTERRUPTED_NS", 200_000),
            idle_poll_ns: get("EMUGPU_POLL_US", 1_000_u64).clamp(5, 100_000) * 1_000,
            working_poll_ns: get("EMUGPU_WORKING_POLL_US", 0_u64).min(100_000) * 1_000,
            real_time: get("EMUGPU_FIFO", 1_u8) != 0,
            log: std::env::var("EMUGPU_LOG").ok().filter(|s| !s.is_empty()),
        }
    }
}

fn get<T: FromStr>(name: &str, default: T) -> T
where
    T::Err: std::fmt::Display,
{
    match std::env::var(name) {
        Ok(s) => s.trim().parse().unwrap_or_else(|e: T::Err| complain(name, &e, default)),
        Err(_) => default,
    }
}

fn complain<T>(name: &str, why: &dyn std::fmt::Display, default: T) -> T {
    eprintln!("emulated-gpu: {name}: {why}; using the default");
    default
}

#[cfg(test)]
mod tests {
    use super::{Arch, Durations, Numbers, matches_glob};

    #[test]
    fn numbers_are_read() {
        let numbers: Numbers = "1, 30".parse().unwrap();
        assert!(numbers.contains(30) && !numbers.contains(3));
        assert!("1,x".parse::<Numbers>().is_err());
    }

    #[test]
    fn targets_are_read() {
        assert_eq!("gfx90a".parse(), Ok(Arch { major: 9, minor: 0, stepping: 10 }));
        assert_eq!("gfx1030".parse(), Ok(Arch { major: 10, minor: 3, stepping: 0 }));
        for bad in ["", "gfx", "gfx803", "900", "gfx9zz"] {
            assert!(bad.parse::<Arch>().is_err(), "{bad}");
        }
    }

    #[test]
    fn globs_match_whole_names() {
        assert!(matches_glob(b"*", b""));
        assert!(matches_glob(b"_Z*storm*", b"_Z6stormTILi3EEvPi"));
        assert!(!matches_glob(b"storm", b"storms"));
    }

    #[test]
    fn the_first_matching_duration_counts() {
        let d: Durations = "slow*=5000, quick=1,*=70".parse().unwrap();
        assert_eq!([d.of("slowest"), d.of("quick"), d.of("x")], [5000, 1, 70]);
        assert_eq!(Durations::default().of("x"), 2000);
        assert!("noequals".parse::<Durations>().is_err());
    }
}
