//! The GPU's clock: ticks of its own frequency, offset and drift, as a pure function of
//! CLOCK_BOOTTIME.
//!
//! Being pure, every process sees the same GPU clock, and a log reader can redo the conversion. All
//! arithmetic is exact in 128-bit integers.

/// The true relation between CLOCK_BOOTTIME nanoseconds and GPU ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuClock {
    /// Nominal frequency in Hz.
    pub frequency_hz: u64,
    /// Ticks started this many ns before CLOCK_BOOTTIME did.
    pub offset_ns: u64,
    /// The clock runs this many millionths faster (or slower) than nominal.
    pub drift_ppm: i64,
}

const NS: u128 = 1_000_000_000;
const MILLION: i64 = 1_000_000;

impl GpuClock {
    /// Numerator of ticks per (ns · 10¹⁵).
    fn rate(&self) -> u128 {
        u128::from(self.frequency_hz) * (MILLION + self.drift_ppm).max(1) as u128
    }

    /// The counter's value at `boot_ns`.
    pub fn ticks(&self, boot_ns: u64) -> u64 {
        let ns = u128::from(boot_ns) + u128::from(self.offset_ns);
        (ns * self.rate() / (NS * MILLION as u128)) as u64
    }

    /// The first CLOCK_BOOTTIME ns at which the counter shows `ticks`.
    pub fn boot_ns(&self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * NS * MILLION as u128).div_ceil(self.rate());
        ns.saturating_sub(u128::from(self.offset_ns)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::GpuClock;

    fn clock(frequency_hz: u64, offset_ns: u64, drift_ppm: i64) -> GpuClock {
        GpuClock { frequency_hz, offset_ns, drift_ppm }
    }

    #[test]
    fn hundred_megahertz_is_ten_nanoseconds_a_tick() {
        let c = clock(100_000_000, 0, 0);
        assert_eq!(c.ticks(1_000_000_009), 100_000_000);
        assert_eq!(c.ticks(1_000_000_010), 100_000_001);
        assert_eq!(c.boot_ns(100_000_001), 1_000_000_010);
    }

    #[test]
    fn ticks_survive_the_round_trip() {
        for c in
            [clock(100_000_000, 77, 0), clock(25_000_000, 1 << 40, -250), clock(27_000_000, 3, 999)]
        {
            for ns in [0, 1, 999, 123_456_789, 86_400_000_000_000, 1 << 55] {
                let t = c.ticks(ns);
                assert_eq!(c.ticks(c.boot_ns(t)), t, "{c:?} at {ns}");
                assert!(c.boot_ns(t) <= ns, "quantising never moves a time into the future");
            }
        }
    }

    #[test]
    fn drift_and_offset_do_what_they_say() {
        let second = 1_000_000_000;
        assert_eq!(clock(100_000_000, 0, 100).ticks(second), 100_010_000);
        assert_eq!(clock(100_000_000, second, 0).ticks(second), 200_000_000);
    }
}
