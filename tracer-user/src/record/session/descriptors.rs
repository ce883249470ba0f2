//! Whether roctap can still open files: each process that is traced needs some.

use std::{fs::File, io};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// The number of descriptors that have to be free for one more process.
const SPARE: usize = 16;

/// Whether the user has been told that descriptors ran out.
#[derive(Default)]
pub struct Descriptors {
    is_reported: bool,
}

impl Descriptors {
    /// The notice that descriptors have run out, once each time that they do.
    pub fn look(&mut self) -> Option<String> {
        self.look_with(|| File::open("/dev/null"))
    }

    fn look_with<T>(&mut self, open: impl Fn() -> io::Result<T>) -> Option<String> {
        let spare: Result<Vec<T>, io::Error> = (0..SPARE).map(|_| open()).collect();
        let errno = spare.err().and_then(|error| Errno::from_io_error(&error));
        let limited = match errno {
            Some(Errno::MFILE) => getrlimit(Resource::Nofile).maximum,
            Some(Errno::NFILE) => None,
            _ => {
                self.is_reported = false;
                return None;
            }
        };
        let first = !std::mem::replace(&mut self.is_reported, true);
        let limit = limited.map_or_else(
            || "of the system (fs.file-max)".to_owned(),
            |limit| format!("of {limit} (`ulimit -Hn`)"),
        );
        first.then(|| {
            format!(
                "roctap has reached its limit of open files, that {limit}: processes and libraries that it meets now are not traced, or only in part; what is traced goes on"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_are_none_is_said_once_each_time() {
        let mut descriptors = Descriptors::default();
        let none = || io::Result::<()>::Err(Errno::MFILE.into());
        let said = descriptors.look_with(none).unwrap();
        assert!(said.contains("ulimit -Hn"), "{said}");
        assert_eq!(descriptors.look_with(none), None);
        assert_eq!(descriptors.look(), None, "this program has enough");
        assert!(descriptors.look_with(none).is_some());
    }
}
