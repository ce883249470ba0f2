//! A library as users have it: below a directory, which may be moved.
//!
//! ```text
//! lib/libroctracer64.so.4                                the library, stripped, and the link for `-l`
//! include/roctracer/…                                    its headers
//! lib/pkgconfig/roctracer.pc                             pkg-config
//! lib/cmake/roctracer/roctracer-config{,-version}.cmake  find_package(roctracer), roctracer::roctracer
//! lib/roctracer/libroctracer_tool.so                     a library that is only loaded
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::{Development, Library, include_directory, link::Source};

impl Library {
    /// Installs the library below `prefix`, as users get it.
    ///
    /// # Errors
    ///
    /// If it cannot be built, stripped or written.
    pub fn install(&self, source: &Source, prefix: &Path) -> anyhow::Result<()> {
        let directory = prefix.join(self.directory);
        let file = self.make(source, &directory)?;
        let strip = Command::new("strip").arg("--strip-unneeded").arg(&file).status();
        ensure!(strip.context("cannot run strip")?.success(), "stripping {}", file.display());
        self.development
            .as_ref()
            .map_or(Ok(()), |development| development.install(self.soname, prefix, &directory))
    }

    /// Where it is below a directory that it was installed in.
    pub fn installed(&self, prefix: &Path) -> PathBuf {
        prefix.join(self.directory).join(self.soname)
    }
}

impl Development {
    fn install(&self, soname: &str, prefix: &Path, directory: &Path) -> anyhow::Result<()> {
        for header in self.headers {
            let from = include_directory()?.join(header);
            write(&prefix.join("include").join(header), &fs::read_to_string(&from)?)?;
        }
        let Self { name, .. } = self;
        write(&directory.join(format!("pkgconfig/{name}.pc")), &self.pkg_config())?;
        let cmake = directory.join("cmake").join(name);
        write(&cmake.join(format!("{name}-config.cmake")), &self.cmake_config(soname))?;
        write(&cmake.join(format!("{name}-config-version.cmake")), &self.cmake_version())
    }

    fn pkg_config(&self) -> String {
        let Self { name, description, version, link, .. } = self;
        let link = link.trim_start_matches("lib").trim_end_matches(".so");
        let include: String =
            self.include().iter().map(|directory| format!(" -I${{prefix}}/{directory}")).collect();
        format!(
            "prefix=${{pcfiledir}}/../..\n\
             libdir=${{prefix}}/lib\n\
             includedir=${{prefix}}/include\n\n\
             Name: {name}\n\
             Description: {description}\n\
             Version: {version}\n\
             Cflags:{include}\n\
             Libs: -L${{libdir}} -l{link}\n"
        )
    }

    /// The directories of headers. Programs that use roctracer name either.
    fn include(&self) -> &'static [&'static str] {
        let roctracer = self.headers.iter().any(|header| header.starts_with("roctracer/"));
        if roctracer { &["include", "include/roctracer"] } else { &["include"] }
    }

    fn cmake_config(&self, soname: &str) -> String {
        let Self { name, .. } = self;
        let include = self.include().iter().map(|directory| format!("${{_prefix}}/{directory}"));
        let include = Vec::from_iter(include).join(";");
        format!(
            "get_filename_component(_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/../../..\" ABSOLUTE)\n\
             if(NOT TARGET {name}::{name})\n\
             \x20 add_library({name}::{name} SHARED IMPORTED)\n\
             \x20 set_target_properties({name}::{name} PROPERTIES\n\
             \x20   IMPORTED_LOCATION \"${{_prefix}}/lib/{soname}\"\n\
             \x20   IMPORTED_SONAME \"{soname}\"\n\
             \x20   INTERFACE_INCLUDE_DIRECTORIES \"{include}\")\n\
             endif()\n\
             unset(_prefix)\n"
        )
    }

    /// A later minor version serves programs that ask for an earlier one.
    fn cmake_version(&self) -> String {
        let Self { version, .. } = self;
        let major = version.split('.').next().unwrap_or_default();
        format!(
            "set(PACKAGE_VERSION \"{version}\")\n\
             if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION AND\n\
             \x20  (NOT PACKAGE_FIND_VERSION_MAJOR OR PACKAGE_FIND_VERSION_MAJOR EQUAL {major}))\n\
             \x20 set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
             endif()\n\
             if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n\
             \x20 set(PACKAGE_VERSION_EXACT TRUE)\n\
             endif()\n"
        )
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(file.parent().context("a directory")?)?;
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}
