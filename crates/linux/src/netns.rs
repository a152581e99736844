//! Network namespaces: named ones like those of `ip netns`, and a user namespace for a process without root.
//!
//! A namespace belongs to a thread. [`Netns::run`] uses a fresh thread, so the caller's namespace does not change;
//! [`Netns::enter_thread`] moves the calling thread permanently.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{LinuxError, Result};
use crate::link;

/// Directory of named namespaces, shared with iproute2.
const DIRECTORY: &str = "/run/netns";

/// A handle on a network namespace. Dropping a handle made by [`Netns::create`] deletes its namespace.
#[derive(Debug)]
pub struct Netns {
    name: Option<String>,
    file: File,
    owned: bool,
}

impl Netns {
    /// Creates a namespace that `ip netns exec NAME` can enter, with `lo` up.
    ///
    /// # Errors
    /// The name exists or is not a file name, or no permission.
    pub fn create(name: &str) -> Result<Netns> {
        let path = path_of(name)?;
        prepare_directory()?;
        let what = || format!("create network namespace {name}");
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| LinuxError::refused(what(), e))?;
        // A failure from here on must not leave the empty file behind.
        let made = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let own = "/proc/thread-self/ns/net";
            mount(Some(own), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        });
        if let Err(e) = made {
            let _ = fs::remove_file(&path);
            return Err(LinuxError::refused(what(), e));
        }
        let mut netns = Netns::open(name)?;
        netns.owned = true;
        netns.run(|| link::set_up("lo", true))??;
        Ok(netns)
    }

    /// Opens the namespace called `name`. Dropping this handle does not delete it.
    ///
    /// # Errors
    /// No such namespace, or no permission.
    pub fn open(name: &str) -> Result<Netns> {
        match File::open(path_of(name)?) {
            Ok(file) => Ok(Netns { name: Some(name.to_owned()), file, owned: false }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(LinuxError::NoSuchNamespace { name: name.to_owned() })
            }
            Err(e) => Err(LinuxError::refused(format!("open network namespace {name}"), e)),
        }
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> Result<Netns> {
        let file = File::open("/proc/thread-self/ns/net")
            .map_err(|e| LinuxError::refused("open the current network namespace", e))?;
        Ok(Netns { name: None, file, owned: false })
    }

    /// The name given to [`Netns::create`] or [`Netns::open`]; `None` for [`Netns::current`].
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Moves the calling thread into this namespace permanently.
    ///
    /// # Errors
    /// No permission.
    pub fn enter_thread(&self) -> Result<()> {
        self.enter().map_err(|e| LinuxError::refused("enter a network namespace", e))
    }

    /// Runs `f` in this namespace on a fresh thread and waits for it. Propagates a panic of `f`.
    ///
    /// # Errors
    /// The thread cannot enter the namespace; `f` was not called.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        on_thread(|| {
            self.enter_thread()?;
            Ok(f())
        })
    }

    /// Prepares a command that runs in this namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let fd: io::Result<OwnedFd> = self.file.as_fd().try_clone_to_owned();
        // SAFETY: between fork and exec the closure makes one system call (setns) on a descriptor it
        // owns, and builds an error value from a number: nothing allocates and nothing locks.
        unsafe {
            command.pre_exec(move || match &fd {
                Ok(fd) => setns(fd, CloneFlags::CLONE_NEWNET).map_err(io::Error::from),
                Err(_) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            });
        }
        command
    }

    /// The descriptor's number, for netlink's `IFLA_NET_NS_FD`.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn enter(&self) -> nix::Result<()> {
        setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let (true, Some(name)) = (self.owned, &self.name) {
            let _ = delete(name);
        }
    }
}

/// The named namespaces whose names begin with `prefix`, sorted.
#[must_use]
pub fn list_with_prefix(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

/// Deletes the named namespace. Processes that still use it keep it alive without its name.
///
/// # Errors
/// No such namespace, or no permission.
pub fn delete(name: &str) -> Result<()> {
    let path = path_of(name)?;
    let what = || format!("delete network namespace {name}");
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a file that never became a mount point; remove it as well.
        Ok(()) | Err(Errno::EINVAL) => (),
        Err(Errno::ENOENT) => return Err(LinuxError::NoSuchNamespace { name: name.to_owned() }),
        Err(e) => return Err(LinuxError::refused(what(), e)),
    }
    fs::remove_file(&path).map_err(|e| LinuxError::refused(what(), e))
}

/// Gives a process without root the privileges of root within new user, mount and network namespaces: maps its uid and
/// gid to root, makes mounts private, mounts an empty `/run` and sets `lo` up. Call it before starting any thread: the
/// kernel rejects a multi-threaded process.
///
/// # Errors
/// [`LinuxError::UserNamespace`] with the setting that forbids it.
pub fn unshare_user() -> Result<()> {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET;
    unshare(flags).map_err(|e| LinuxError::UserNamespace { limit: what_forbids(e) })?;
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(|e| LinuxError::UserNamespace {
            limit: format!("{path} cannot be written ({e}); {}", apparmor_advice()),
        })
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|e| LinuxError::refused("make mounts private", e))?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))
        .map_err(|e| LinuxError::refused("mount an empty /run", e))?;
    link::set_up("lo", true)
}

fn what_forbids(error: Errno) -> String {
    let sysctl = |path: &str| fs::read_to_string(path).map(|s| s.trim().to_owned()).ok();
    if error == Errno::EINVAL {
        return "the process already has several threads".to_owned();
    }
    if sysctl("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "kernel.unprivileged_userns_clone is 0 (an administrator can set it to 1)"
            .to_owned();
    }
    if sysctl("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "user.max_user_namespaces is 0 (an administrator can raise it)".to_owned();
    }
    if error == Errno::ENOSPC {
        return "the limit user.max_user_namespaces or user.max_net_namespaces is reached"
            .to_owned();
    }
    format!("{error}; {}", apparmor_advice())
}

fn apparmor_advice() -> &'static str {
    let path = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    match fs::read_to_string(path) {
        Ok(text) if text.trim() == "1" => {
            "AppArmor forbids it: kernel.apparmor_restrict_unprivileged_userns is 1"
        }
        _ => "a security module or a container's seccomp filter may forbid it; run as root",
    }
}

fn path_of(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        let why = "it must be a plain file name";
        return Err(LinuxError::BadName { name: name.to_owned(), of: "a namespace", why });
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Creates the directory as a shared mount, as iproute2 does. Otherwise a namespace deleted here would stay mounted in
/// every mount namespace that saw it.
fn prepare_directory() -> Result<()> {
    let what = || format!("prepare {DIRECTORY}");
    fs::create_dir_all(DIRECTORY).map_err(|e| LinuxError::refused(what(), e))?;
    let none = None::<&str>;
    let share = || mount(none, DIRECTORY, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none);
    match share() {
        Err(Errno::EINVAL) => {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(DIRECTORY), DIRECTORY, none, flags, none)
                .and_then(|()| share())
                .map_err(|e| LinuxError::refused(what(), e))
        }
        other => other.map_err(|e| LinuxError::refused(what(), e)),
    }
}

fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(f).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
