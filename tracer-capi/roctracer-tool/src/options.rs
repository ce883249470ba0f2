//! The options in the environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::input::{self, Input};

/// Bytes of each of the two buffers of the pool, where `ROCTRACER_BUFFER_SIZE` does not say it.
const BUFFER_BYTES: usize = 0x20_0000;
/// The plugin, where `ROCTRACER_PLUGIN_LIB` does not name one.
const PLUGIN: &str = "libfile_plugin.so";

/// The options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Marks and ranges.
    pub roctx: bool,
    /// Calls of HSA: the named ones; all if none is named.
    pub hsa_calls: Option<Vec<String>>,
    /// Copies of HSA.
    pub hsa_work: bool,
    /// Calls of HIP, as of HSA.
    pub hip_calls: Option<Vec<String>>,
    /// Work of GPUs for HIP.
    pub hip_work: bool,
    /// The times in which it is traced.
    pub control: Control,
    /// The time between two deliveries of the records.
    pub flush_every: Option<Duration>,
    /// Bytes of each of the two buffers of the pool.
    pub buffer_bytes: usize,
    /// The plugin: beside the tool, or anywhere.
    pub plugin: PathBuf,
    /// The file that says what is to be traced, if it says something.
    pub input: Option<PathBuf>,
    /// Options that are not served, in words.
    pub refused: Vec<&'static str>,
}

/// The times in which it is traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Always.
    Always,
    /// When the program calls `roctracer_start`.
    Stopped,
    /// Again and again, for a while.
    Periods {
        /// Before the first time.
        delay: Duration,
        /// The length of a period.
        length: Duration,
        /// From begin to begin.
        rate: Duration,
    },
}

/// The reason for which nothing is traced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable has a value that means nothing.
    #[error("{variable}={value:?} is not {form}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The form that the value should have.
        form: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read the file {} that ROCP_INPUT names: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file means nothing.
    #[error("the file {} that ROCP_INPUT names: {cause}", path.display())]
    NotUnderstood {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: input::Error,
    },
}

impl Options {
    /// The options of an environment.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
        let domain = text("ROCTRACER_DOMAIN").unwrap_or_default();
        let has = |word| domain.contains(word);
        let all = |is_wanted: bool| is_wanted.then(Vec::new);
        let path = variable("ROCP_INPUT").map(PathBuf::from);
        let Input { roctx, hsa, gpu, hip } = path.as_deref().map_or(Ok(Input::default()), read)?;
        let says = roctx || gpu || hsa.is_some() || hip.is_some();
        let hsa_work = has("hsa") || gpu;
        let hip_work = has("hip") || has("sys") || hip.is_some();
        Ok(Self {
            roctx: has("roctx") || roctx,
            hsa_calls: hsa.or(all(has("hsa") || has("sys"))),
            hsa_work,
            hip_calls: hip.or(all(has("hip") || has("sys"))),
            // Each piece of work is recorded once.
            hip_work: hip_work && !hsa_work,
            control: text("ROCP_CTRL_RATE").map_or(Ok(Control::Always), control)?,
            flush_every: text("ROCP_FLUSH_RATE").map(flush_rate).transpose()?,
            buffer_bytes: text("ROCTRACER_BUFFER_SIZE").map_or(Ok(BUFFER_BYTES), buffer_bytes)?,
            plugin: variable("ROCTRACER_PLUGIN_LIB").unwrap_or_else(|| PLUGIN.into()).into(),
            input: path.filter(|_| says),
            refused: if has("pcs") {
                vec!["pcs (samples of the program counter)"]
            } else {
                Vec::new()
            },
        })
    }
}

fn read(path: &Path) -> Result<Input, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| Error::Unreadable { path: path.into(), cause })?;
    Input::parse(&text).map_err(|cause| Error::NotUnderstood { path: path.into(), cause })
}

/// `delay:length:rate` in µs; with a delay of 2³²−1, or −1, tracing begins only by `roctracer_start`.
fn control(value: String) -> Result<Control, Error> {
    const FOR_EVER: i64 = 0xFFFF_FFFF;
    let numbers = value.split(':').map(|number| number.trim().parse::<i64>().ok());
    let numbers: Option<Vec<i64>> = numbers.collect();
    let us = |number: i64| u64::try_from(number).ok().map(Duration::from_micros);
    let periods = match numbers.as_deref() {
        Some([-1 | FOR_EVER, length, rate]) if length <= rate => return Ok(Control::Stopped),
        Some(&[delay, length, rate]) if length <= rate => us(delay).zip(us(length)).zip(us(rate)),
        _ => None,
    };
    let ((delay, length), rate) = periods.ok_or(Error::Variable {
        variable: "ROCP_CTRL_RATE",
        value,
        form: "delay:length:rate in µs, with a length that is not larger than the rate",
    })?;
    Ok(Control::Periods { delay, length, rate })
}

fn flush_rate(value: String) -> Result<Duration, Error> {
    let us = value.trim().parse().ok().filter(|&us: &u32| us > 0);
    let us =
        us.ok_or(Error::Variable { variable: "ROCP_FLUSH_RATE", value, form: "a number of µs" })?;
    Ok(Duration::from_micros(us.into()))
}

fn buffer_bytes(value: String) -> Result<usize, Error> {
    let bytes = value.trim().parse().ok().filter(|&bytes: &usize| bytes > 0);
    bytes.ok_or(Error::Variable {
        variable: "ROCTRACER_BUFFER_SIZE",
        value,
        form: "a number of bytes",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<Options, Error> {
        Options::of(|name| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn of_domain(domain: &str) -> Options {
        options(&[("ROCTRACER_DOMAIN", domain)]).unwrap()
    }

    #[test]
    fn domains_are_parts_of_the_value() {
        let all = || Some(Vec::new());
        for (domain, roctx, hsa_calls, hsa_work, hip_calls, hip_work) in [
            ("", false, None, false, None, false),
            ("hip", false, None, false, all(), true),
            ("hsa", false, all(), true, None, false),
            ("sys:roctx", true, all(), false, all(), true),
            ("hip,hsa", false, all(), true, all(), false),
            ("sys:hsa:roctx", true, all(), true, all(), false),
        ] {
            let found = of_domain(domain);
            let found =
                (found.roctx, found.hsa_calls, found.hsa_work, found.hip_calls, found.hip_work);
            assert_eq!(found, (roctx, hsa_calls, hsa_work, hip_calls, hip_work), "{domain}");
        }
        assert_eq!(of_domain("pcs,hip").refused.len(), 1);
        let nothing = of_domain("");
        assert_eq!((nothing.buffer_bytes, nothing.control), (0x20_0000, Control::Always));
        assert_eq!((nothing.plugin, nothing.flush_every), (PLUGIN.into(), None));
    }

    #[test]
    fn a_file_adds_to_the_domains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("input.xml");
        let input = path.to_str().unwrap();
        std::fs::write(&path, "<trace name=\"HIP\"><parameters api=\"hipFree\"/></trace>").unwrap();
        let found = options(&[("ROCP_INPUT", input), ("ROCTRACER_DOMAIN", "hsa")]).unwrap();
        assert_eq!(found.hip_calls, Some(vec!["hipFree".to_owned()]));
        assert_eq!((found.hsa_calls, found.hip_work), (Some(vec![]), false));
        assert_eq!(found.input.as_ref(), Some(&path));
        std::fs::write(&path, "").unwrap();
        assert_eq!(options(&[("ROCP_INPUT", input)]).unwrap().input, None);
        std::fs::write(&path, "<trace>").unwrap();
        let error = options(&[("ROCP_INPUT", input)]).unwrap_err().to_string();
        assert!(error.contains("input.xml that ROCP_INPUT names: "), "{error}");
        let error = options(&[("ROCP_INPUT", "/nowhere/x")]).unwrap_err().to_string();
        assert!(error.contains("cannot read the file /nowhere/x"), "{error}");
    }

    #[test]
    fn rates() {
        let control = |value| options(&[("ROCP_CTRL_RATE", value)]).map(|found| found.control);
        let us = Duration::from_micros;
        let periods = Control::Periods { delay: us(10), length: us(50), rate: us(500) };
        assert_eq!(control("10:50:500").unwrap(), periods);
        for stopped in ["4294967295:1:1", "-1:1:2"] {
            assert_eq!(control(stopped).unwrap(), Control::Stopped);
        }
        for wrong in ["", "10:50", "10:500:50", "a:b:c", "-2:1:1", "1:2:3:4"] {
            let error = control(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("ROCP_CTRL_RATE={wrong:?} is not ")), "{error}");
        }
        let rate = |value| options(&[("ROCP_FLUSH_RATE", value)]).map(|found| found.flush_every);
        assert_eq!(rate("1000").unwrap(), Some(us(1000)));
        assert!(["0", "x", "-1"].iter().all(|wrong| rate(wrong).is_err()));
        let bytes =
            |value| options(&[("ROCTRACER_BUFFER_SIZE", value)]).map(|found| found.buffer_bytes);
        assert_eq!(bytes("4096").unwrap(), 4096);
        assert!(["0", "2M"].iter().all(|wrong| bytes(wrong).is_err()));
    }
}
