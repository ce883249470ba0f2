//! A plugin of roctracer's (`roctracer_plugin.h`), for code that feeds one.

#![expect(unsafe_code, reason = "functions of a library that is loaded")]

use core::ffi::{c_int, c_void};
use std::mem;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use tracer_common::activity::ActivityRecord;

/// The version of roctracer that a plugin is told.
pub const MAJOR: u32 = 4;
/// The same.
pub const MINOR: u32 = 1;

/// The variable by which roctap, which feeds a plugin from a trace, tells the plugin the process of the records.
pub const TRACED_PROCESS: &str = "ROCTAP_TRACED_PROCESS";

/// The reason for which a plugin is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there, or is no library.
    #[error("cannot load the plugin {}: {cause}", path.display())]
    Missing {
        /// The file that it should be.
        path: PathBuf,
        /// The linker's words.
        cause: libloading::Error,
    },
    /// It lacks a function.
    #[error("{} is no plugin of roctracer's: it has no function {function}", path.display())]
    Lacks {
        /// Its file.
        path: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// It refuses to begin.
    #[error(
        "the plugin {} did not begin: roctracer_plugin_initialize({MAJOR}, {MINOR}) returned {status}; if \
         no line above says why, it may serve another version of roctracer",
        path.display()
    )]
    Refuses {
        /// Its file.
        path: PathBuf,
        /// The status that it returned.
        status: c_int,
    },
}

type Initialize = unsafe extern "C-unwind" fn(u32, u32) -> c_int;
type Finalize = unsafe extern "C-unwind" fn();
type WriteCall = unsafe extern "C-unwind" fn(*const ActivityRecord, *const c_void) -> c_int;
type WriteActivities =
    unsafe extern "C-unwind" fn(*const ActivityRecord, *const ActivityRecord) -> c_int;

/// A plugin that has begun. Its functions are called by one thread at a time.
#[derive(Debug)]
pub struct Plugin {
    path: PathBuf,
    finalize: Finalize,
    write_call: WriteCall,
    write_activities: WriteActivities,
}

impl Plugin {
    /// Loads a plugin, which stays, and has it begin.
    ///
    /// # Errors
    ///
    /// If there is none, or it does not begin.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let path = path.to_path_buf();
        // SAFETY: what it does when it is loaded is what the user wants.
        let library = match unsafe { Library::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) } {
            Ok(library) => library,
            Err(cause) => return Err(Error::Missing { path, cause }),
        };
        // It stays also where it is of no use: a thread of it may run.
        let library = mem::ManuallyDrop::new(library);
        let initialize: Initialize = find(&library, &path, "roctracer_plugin_initialize")?;
        let plugin = Self {
            finalize: find(&library, &path, "roctracer_plugin_finalize")?,
            write_call: find(&library, &path, "roctracer_plugin_write_callback_record")?,
            write_activities: find(&library, &path, "roctracer_plugin_write_activity_records")?,
            path,
        };
        // SAFETY: the plugin's function, before all others.
        let status = unsafe { initialize(MAJOR, MINOR) };
        if status != 0 {
            return Err(Error::Refuses { path: plugin.path, status });
        }
        Ok(plugin)
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands a call over, and returns what the plugin returns.
    ///
    /// # Safety
    ///
    /// `data` is what callbacks of the record's domain are given.
    pub unsafe fn write_call(&self, record: &ActivityRecord, data: *const c_void) -> c_int {
        // SAFETY: the plugin's function, with what it takes, as the caller promises.
        unsafe { (self.write_call)(record, data) }
    }

    /// Hands activities over, and returns what the plugin returns.
    ///
    /// # Safety
    ///
    /// They are records, from `begin` to before `end`, whose names are null or strings.
    pub unsafe fn write_activities(
        &self,
        begin: *const ActivityRecord,
        end: *const ActivityRecord,
    ) -> c_int {
        // SAFETY: the plugin's function, with what it takes, as the caller promises.
        unsafe { (self.write_activities)(begin, end) }
    }

    /// Has the plugin end.
    ///
    /// # Safety
    ///
    /// No other function is called any more.
    pub unsafe fn finalize(&self) {
        // SAFETY: the plugin's function, after all others, as the caller promises.
        unsafe { (self.finalize)() };
    }
}

fn find<T: Copy>(library: &Library, path: &Path, function: &'static str) -> Result<T, Error> {
    // SAFETY: a function of this type, by its name.
    let found = unsafe { library.get::<T>(function.as_bytes()) };
    found.map(|found| *found).map_err(|_| Error::Lacks { path: path.into(), function })
}
