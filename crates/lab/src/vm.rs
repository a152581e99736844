//! A virtual machine with a distribution's kernel, for features that this machine's kernel lacks. Its root file system
//! is that of this machine, read-only below an overlay in memory. It has no external network. The processor is
//! emulated, so that it runs everywhere: suitable for tests of behaviour but not of speed. It leaves nothing behind:
//! its boot files are in memory, and the kernel ends qemu together with this process.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use segue_clock::Span;
use segue_linux::clock::monotonic;
use segue_linux::process::{end_with_parent, unblock_signals};
use segue_linux::stop_signals::StopSignals;

mod initramfs;

const QEMU: &str = "qemu-system-x86_64";
const MEMORY: &str = "2048";
const PROCESSORS: &str = "2";
/// Bytes kept of the end of the console output.
const CONSOLE_BYTES: usize = 4_096;
/// Directories that the virtual machine mounts itself.
const COVERED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// The script to run.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// A program, or a script for `sh`.
    pub file: &'a Path,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// Maximum duration, including the start of the virtual machine.
    pub limit: Span,
}

/// The components of a virtual machine.
#[derive(Debug)]
pub struct Pieces {
    qemu: PathBuf,
    busybox: PathBuf,
    kernel: Kernel,
}

#[derive(Debug)]
struct Kernel {
    image: PathBuf,
    modules: PathBuf,
    release: String,
}

impl Pieces {
    /// Finds all components. The kernel is the one below `directory` (`boot/vmlinuz-*` with `lib/modules/*`), otherwise
    /// one that `scripts/deps.sh vm` fetched, otherwise an installed one.
    ///
    /// # Errors
    /// One line with the missing component and how to install it.
    pub fn find(directory: Option<&Path>) -> Result<Pieces> {
        let (qemu, busybox, modprobe) = (program(QEMU), program("busybox"), program("modprobe"));
        let packages = [
            (qemu.is_none(), "qemu-system-x86"),
            (busybox.as_deref().is_none_or(|file| !stands_alone(file)), "busybox-static"),
            (modprobe.is_none(), "kmod"),
        ];
        let missing: Vec<&str> =
            packages.iter().filter(|(missing, _)| *missing).map(|(_, name)| *name).collect();
        let (Some(qemu), Some(busybox), true) = (qemu, busybox, missing.is_empty()) else {
            bail!(
                "a virtual machine needs {}: install it (scripts/deps.sh vm)",
                missing.join(", ")
            );
        };
        let fetched = fetched();
        let places = match (directory, &fetched) {
            (Some(directory), _) => vec![directory],
            (None, Some(fetched)) => vec![fetched, Path::new("/")],
            (None, None) => vec![Path::new("/")],
        };
        let Some(kernel) = places.iter().find_map(|place| Kernel::below(place)) else {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            bail!(
                "there is no kernel with its modules (boot/vmlinuz-*, lib/modules/*) in {}: scripts/deps.sh vm fetches one",
                places.join(" or ")
            );
        };
        Ok(Pieces { qemu, busybox, kernel })
    }
}

impl Kernel {
    /// The newest readable kernel in this directory.
    fn below(directory: &Path) -> Option<Kernel> {
        let releases = std::fs::read_dir(directory.join("lib/modules")).ok()?;
        let kernels = releases.filter_map(|entry| {
            let modules = entry.ok()?.path();
            let release = modules.file_name()?.to_str()?.to_owned();
            let image = directory.join(format!("boot/vmlinuz-{release}"));
            let installed = File::open(&image).ok()?.metadata().ok()?.modified().ok()?;
            let whole = modules.join("modules.dep").is_file();
            whole.then_some((installed, Kernel { image, modules, release }))
        });
        kernels.max_by_key(|(installed, _)| *installed).map(|(_, kernel)| kernel)
    }
}

/// The directory in which `scripts/deps.sh vm` installs a kernel.
fn fetched() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    Some(cache.map(PathBuf::from).or_else(home)?.join("segue/vm"))
}

/// Finds a program's path. Includes the administrators' directories, which a user's PATH may lack.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

/// True for a statically linked program, which names no loader.
fn stands_alone(file: &Path) -> bool {
    let loader = b"/ld-linux";
    std::fs::read(file).is_ok_and(|bytes| {
        let head = &bytes[..bytes.len().min(4_096)];
        !head.windows(loader.len()).any(|window| window == loader)
    })
}

/// Runs a script as root in a virtual machine, passes its output on to standard output and standard error, and returns
/// its exit status. The script starts in the current directory, and its PATH begins with the directory of this program.
///
/// # Errors
/// The script cannot be run, the virtual machine does not start, the time limit expires, or the user requests a stop.
pub fn run(pieces: &Pieces, script: Script) -> Result<u8> {
    let words = words(&pieces.kernel, script)?;
    let archive = initramfs::pack(&pieces.busybox, &pieces.kernel.modules, &words)?;
    let signals = StopSignals::take().context("wait for signals")?;
    let until = monotonic() + script.limit;
    let mut machine = Machine::start(pieces, &archive)?;
    while machine.channels.iter().any(|channel| channel.open) {
        let open = machine.channels.iter().filter(|channel| channel.open);
        if signals.wait(open.map(|channel| channel.ours.as_fd()), Some(until))? {
            bail!("interrupted");
        }
        if monotonic() >= until {
            bail!("the script did not end within {} s", script.limit.as_secs_f64());
        }
        machine.pass_on()?;
    }
    machine.end()
}

/// The streams from the virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Output,
    Errors,
    Status,
    Console,
}

/// One stream from the virtual machine.
struct Channel {
    says: Says,
    ours: UnixStream,
    open: bool,
    /// Unforwarded output; at most the last [`CONSOLE_BYTES`].
    kept: Vec<u8>,
}

/// A running virtual machine. Dropping it ends it.
struct Machine {
    qemu: Child,
    channels: Vec<Channel>,
}

impl Machine {
    fn start(pieces: &Pieces, archive: &[u8]) -> Result<Machine> {
        let memory = memfd_create(c"segue-vm", MFdFlags::empty()).context("memory for the boot")?;
        let mut memory = File::from(memory);
        memory.write_all(archive).context("memory for the boot")?;
        let mut command = Command::new(&pieces.qemu);
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-nic", "none"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", MEMORY, "-smp", PROCESSORS])
            .args(["-no-reboot", "-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
            .arg("-kernel")
            .arg(&pieces.kernel.image)
            .args(["-initrd", &format!("/dev/fd/{}", memory.as_raw_fd())])
            .args([
                "-virtfs",
                "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
            ])
            .args(["-device", "virtio-serial"]);
        // Port numbers start at 1 in this order.
        let (mut channels, mut theirs) = (Vec::new(), Vec::new());
        for (i, says) in
            [Says::Console, Says::Output, Says::Errors, Says::Status].into_iter().enumerate()
        {
            let (ours, other) = UnixStream::pair().context("channel of the virtual machine")?;
            ours.set_nonblocking(true).context("channel of the virtual machine")?;
            command.args(["-chardev", &format!("socket,id=c{i},fd={}", other.as_raw_fd())]);
            match says {
                Says::Console => command.args(["-serial", &format!("chardev:c{i}")]),
                _ => command.args(["-device", &format!("virtserialport,chardev=c{i},nr={i}")]),
            };
            theirs.push(OwnedFd::from(other));
            channels.push(Channel { says, ours, open: true, kept: Vec::new() });
        }
        let inherited = theirs.iter().map(OwnedFd::as_fd);
        inherited.chain([memory.as_fd()]).try_for_each(keep_open)?;
        end_with_parent(&mut command);
        unblock_signals(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let qemu = command.spawn().with_context(|| pieces.qemu.display().to_string())?;
        Ok(Machine { qemu, channels })
    }

    /// Forwards the available output without waiting for more.
    fn pass_on(&mut self) -> Result<()> {
        let mut buffer = [0; 16_384];
        for channel in self.channels.iter_mut().filter(|channel| channel.open) {
            loop {
                let got = match channel.ours.read(&mut buffer) {
                    Ok(0) => break channel.open = false,
                    Ok(len) => &buffer[..len],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // qemu ended with unread data.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                        break channel.open = false;
                    }
                    Err(error) => return Err(error).context("read from the virtual machine"),
                };
                channel.take(got)?;
            }
        }
        Ok(())
    }

    /// Returns the script's exit status after qemu has ended.
    fn end(mut self) -> Result<u8> {
        let status = String::from_utf8_lossy(self.kept(Says::Status)).trim().parse();
        if let Ok(status) = status {
            return Ok(status);
        }
        let mut words = String::new();
        if let Some(mut errors) = self.qemu.stderr.take() {
            let _ = errors.read_to_string(&mut words);
        }
        words += &String::from_utf8_lossy(self.kept(Says::Console));
        let lines = || words.lines().map(str::trim).filter(|line| !line.is_empty());
        let panic = lines().find(|line| line.contains("panic") || line.contains(QEMU));
        let last = panic.or(lines().next_back()).unwrap_or("it said nothing");
        bail!("the virtual machine ended before the script: {last}")
    }

    fn kept(&self, what: Says) -> &[u8] {
        let mut channels = self.channels.iter().filter(|channel| channel.says == what);
        channels.next().map_or(&[], |channel| &channel.kept)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Channel {
    fn take(&mut self, got: &[u8]) -> Result<()> {
        let passed = match self.says {
            Says::Output => {
                let mut out = std::io::stdout().lock();
                out.write_all(got).and_then(|()| out.flush())
            }
            Says::Errors => std::io::stderr().lock().write_all(got),
            Says::Status | Says::Console => {
                self.kept.extend_from_slice(got);
                self.kept.drain(..self.kept.len().saturating_sub(CONSOLE_BYTES));
                Ok(())
            }
        };
        passed.context("pass on the script's output")
    }
}

/// Lets child processes inherit a descriptor.
fn keep_open(descriptor: BorrowedFd) -> Result<()> {
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).context("descriptor for qemu")?;
    Ok(())
}

/// Variables and arguments of guest.sh, for the shell to read.
fn words(kernel: &Kernel, script: Script) -> Result<Vec<u8>> {
    let name = script.file.display();
    let file = script.file.canonicalize().with_context(|| format!("cannot run {name}"))?;
    let mode = file.metadata().with_context(|| format!("cannot run {name}"))?;
    if !mode.is_file() {
        bail!("cannot run {name}: it is no file");
    }
    let directory = std::env::current_dir().context("the current directory")?;
    if let Some(hidden) =
        [&file, &directory].iter().find(|p| COVERED.iter().any(|c| p.starts_with(c)))
    {
        bail!(
            "{} is not to be seen in a virtual machine, which has its own {}",
            hidden.display(),
            COVERED.join(", ")
        );
    }
    let own = std::env::current_exe().context("the place of this program")?;
    let own = own.parent().unwrap_or(Path::new("/"));
    let modules = kernel.modules.canonicalize().context("the kernel's modules")?;
    let mut words = Vec::new();
    let mut set = |name: &str, value: &[u8]| {
        words.extend_from_slice(name.as_bytes());
        quote(value, &mut words);
        words.push(b'\n');
    };
    set("directory=", directory.as_os_str().as_bytes());
    set("modules=", modules.as_os_str().as_bytes());
    set("release=", kernel.release.as_bytes());
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    set("PATH=", &[own.as_os_str().as_bytes(), b":", system.as_bytes()].concat());
    words.extend_from_slice(b"set --");
    let shell = (mode.permissions().mode() & 0o111 == 0).then_some(OsString::from("/bin/sh"));
    let file = file.into_os_string();
    for word in shell.iter().chain([&file]).chain(script.arguments) {
        words.push(b' ');
        quote(word.as_bytes(), &mut words);
    }
    words.push(b'\n');
    Ok(words)
}

/// Quotes arbitrary bytes as one word of the shell.
fn quote(word: &[u8], into: &mut Vec<u8>) {
    into.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => into.extend_from_slice(br"'\''"),
            _ => into.push(*byte),
        }
    }
    into.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reaches_the_shell_whatever_is_in_it() {
        let word = b"it's $HOME; `x` \"y\"\n\\ \xff";
        let mut quoted = b"printf %s ".to_vec();
        quote(word, &mut quoted);
        let script = std::ffi::OsStr::from_bytes(&quoted);
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(output.stdout, word);
    }

    #[test]
    fn the_kernel_is_the_last_that_is_there_with_its_modules() {
        let place = std::env::temp_dir().join(format!("segue-kernels{}", std::process::id()));
        let file = |name: &str| {
            let path = place.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap()
        };
        let at = |s| std::time::UNIX_EPOCH + std::time::Duration::from_secs(s);
        assert!(Kernel::below(&place).is_none());
        for (release, installed) in [("9", at(1)), ("10", at(2))] {
            file(&format!("boot/vmlinuz-{release}")).set_modified(installed).unwrap();
            file(&format!("lib/modules/{release}/modules.dep"));
        }
        file("boot/vmlinuz-11");
        file("lib/modules/12/modules.dep");
        let found = Kernel::below(&place).map(|kernel| kernel.release);
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(found.as_deref(), Some("10"));
    }
}
