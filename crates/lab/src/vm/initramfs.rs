//! The initial file system of a virtual machine: an archive in the format "newc" (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst), with the modules to mount the machine's root.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Modules that the virtual machine requires before it can load modules itself.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// Magic number of a header, which thirteen fields of eight hexadecimal digits follow.
const MAGIC: &str = "070701";
/// Name of the last entry.
const END: &str = "TRAILER!!!";

/// An archive under construction.
#[derive(Debug, Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        // All other fields are zero: inode, owner, links, time, devices, checksum.
        let (size, name_bytes) = (contents.len(), name.len() + 1);
        let (zeros, fields) = ("0".repeat(32), "0".repeat(32));
        let header =
            format!("{MAGIC}{:08x}{mode:08x}{zeros}{size:08x}{fields}{name_bytes:08x}{:08x}", 0, 0);
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self.pad();
        self.0.extend_from_slice(contents);
        self.pad();
    }

    /// Aligns to four bytes, as names and contents require.
    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Packs the archive: `busybox`, the modules from the kernel's directory, and the two scripts with the words of the
/// second.
///
/// # Errors
/// A file cannot be read, or the kernel lacks a module.
pub(super) fn pack(busybox: &Path, modules: &Path, words: &[u8]) -> Result<Vec<u8>> {
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let text = |name: &str| -> Result<String> {
        Ok(String::from_utf8_lossy(&read(&modules.join(name))?).into_owned())
    };
    let order = order(&text("modules.dep")?, &text("modules.builtin")?)?;
    let mut archive = Archive::default();
    for directory in ["bin", "lib"] {
        archive.add(directory, DIRECTORY, &[]);
    }
    archive.add("bin/busybox", PROGRAM, &read(busybox)?);
    let mut names = String::new();
    for file in order {
        let (name, unpacked) = unpacked(&modules.join(&file))?;
        archive.add(&format!("lib/{name}"), PROGRAM, &unpacked);
        names += &format!("{name}\n");
    }
    archive.add("modules", PROGRAM, names.as_bytes());
    archive.add("init", PROGRAM, include_bytes!("init.sh"));
    archive.add("guest.sh", PROGRAM, include_bytes!("guest.sh"));
    archive.add("words", PROGRAM, words);
    archive.add(END, 0, &[]);
    Ok(archive.0)
}

/// The files of [`MODULES`] and of their dependencies, each after those that it depends on.
fn order(dependencies: &str, built_in: &str) -> Result<Vec<String>> {
    let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
    let files: BTreeMap<String, (&str, &str)> =
        lines.map(|(file, needs)| (name_of(file), (file, needs))).collect();
    let mut order: Vec<&str> = Vec::new();
    for module in MODULES {
        let Some((file, needs)) = files.get(module) else {
            if built_in.lines().any(|file| name_of(file) == module) {
                continue;
            }
            bail!("this kernel has no module {module}");
        };
        // The last dependency in the list must be loaded first.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.contains(&file) {
                order.push(file);
            }
        }
    }
    Ok(order.into_iter().map(str::to_owned).collect())
}

/// Module name of a file: `kernel/net/9p/9pnet.ko.xz` gives `9pnet`.
fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// File name of a module without the compression suffix, and its uncompressed contents.
fn unpacked(file: &Path) -> Result<(String, Vec<u8>)> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok((name, std::fs::read(file).with_context(|| file.display().to_string())?)),
    };
    let output = Command::new(tool).arg("-dc").arg(file).output();
    let output = output.with_context(|| format!("{tool} is missing, which unpacks {name}"))?;
    if !output.status.success() {
        bail!("{tool} cannot unpack {}", file.display());
    }
    let name = name.rsplit_once('.').map_or(&*name, |(name, _)| name);
    Ok((name.to_owned(), output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_fields_where_the_format_has_them_and_begins_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.add("ab", PROGRAM, b"xyz");
        let bytes = &archive.0;
        let field = |i: usize| {
            let digits = std::str::from_utf8(&bytes[6 + 8 * i..14 + 8 * i]).unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        };
        assert_eq!(&bytes[..6], b"070701");
        // Mode, size of the contents, size of the name with its terminating zero.
        assert_eq!((field(1), field(6), field(11)), (PROGRAM, 3, 3));
        assert_eq!(&bytes[110..112], b"ab");
        assert_eq!(&bytes[116..119], b"xyz");
        assert_eq!(bytes.len(), 120);
    }

    #[test]
    fn modules_stand_after_what_they_need_each_once_and_those_built_in_are_left_out() {
        let dependencies = "kernel/9p.ko: kernel/9pnet.ko kernel/netfs.ko\n\
            kernel/9pnet.ko:\nkernel/9pnet_virtio.ko.xz: kernel/9pnet.ko kernel/virtio.ko\n\
            kernel/virtio-console.ko: kernel/virtio.ko\nkernel/overlay.ko:\n";
        let built_in = "kernel/virtio_pci.ko\n";
        let expected = [
            "virtio.ko",
            "virtio-console.ko",
            "9pnet.ko",
            "9pnet_virtio.ko.xz",
            "netfs.ko",
            "9p.ko",
            "overlay.ko",
        ];
        let order = order(dependencies, built_in).unwrap();
        assert_eq!(order, expected.map(|file| format!("kernel/{file}")));
        let error = super::order(dependencies, "").unwrap_err().to_string();
        assert_eq!(error, "this kernel has no module virtio_pci");
    }
}
