//! The mount over `/dev/fuse`: made directly or through `fusermount3`, and unmounted.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use pelago_wire::limits;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{getegid, geteuid};

use super::point::{Point, path_of};
use super::{MountError, UnmountError};
use crate::mountinfo::{self, FS_TYPE, MountEntry};
use crate::options::{Atime, MountOptions};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// The environment variable with the socket over which the helper sends the device.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// A mount point with our device on it.
pub(super) struct Attached {
    pub(super) point: PathBuf,
    /// The parent of the mount point. Directories above a mount point can be renamed, so that its
    /// path leads elsewhere.
    above: Option<OwnedFd>,
    pub(super) by_helper: bool,
    /// Our mount in the mount table; its device distinguishes it from a later mount on the same
    /// point. `None` if the table did not have it.
    pub(super) entry: Option<MountEntry>,
}

/// Mounts on `point` and returns the device from which requests are read.
pub(super) fn attach(
    point: Point,
    options: &MountOptions,
) -> Result<(Attached, OwnedFd), MountError> {
    let by_helper = !geteuid().is_root();
    let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat(&point.directory, "..", above, Mode::empty()).ok();
    let descriptor = match by_helper {
        true => ask_helper(&point.path, options)?,
        false => mount_directly(&point, options)?,
    };
    let point = point.path;
    let entry = mountinfo::at(&point).ok().flatten().filter(|entry| entry.fs_type == FS_TYPE);
    Ok((Attached { point, above, by_helper, entry }, descriptor))
}

impl Attached {
    pub(super) fn unmount(&self) -> Result<(), UnmountError> {
        self.end(UnmountFlags::empty())
    }

    pub(super) fn detach(&self) -> Result<(), UnmountError> {
        self.end(UnmountFlags::DETACH)
    }

    /// Detaches a mount whose session has ended without an unmount, because the connection was
    /// aborted. A mount that may be another one is left alone.
    pub(super) fn clear(&self) -> Result<(), UnmountError> {
        if self.entry.is_some() { self.detach() } else { Ok(()) }
    }

    /// Sets readahead. Linux begins with 128 KiB whatever was negotiated (`max_readahead` only
    /// limits it), an eighth of what one request may read. Only root may; without it reads are
    /// slower.
    pub(super) fn read_ahead(&self, bytes: u32) {
        let Some(entry) = &self.entry else { return };
        let setting = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
        if let Err(error) = fs::write(&setting, (bytes >> 10).to_string()) {
            tracing::debug!(%error, setting, "readahead stays small: reads are slower");
        }
    }

    fn end(&self, flags: UnmountFlags) -> Result<(), UnmountError> {
        if !self.is_there() {
            return Ok(());
        }
        if self.by_helper {
            return self.end_by_helper(flags.contains(UnmountFlags::DETACH));
        }
        let point = match (&self.above, self.point.file_name()) {
            (Some(above), Some(name)) => path_of(above).join(name),
            _ => self.point.clone(),
        };
        match unmount(&point, flags | UnmountFlags::NOFOLLOW) {
            // Another process has unmounted it meanwhile.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
            Err(Errno::BUSY) => Err(UnmountError::Busy(self.point.clone())),
            Err(Errno::PERM) => Err(UnmountError::NoPermission(self.point.clone())),
            Err(error) => Err(self.unmount_error(error.into())),
        }
    }

    fn end_by_helper(&self, lazily: bool) -> Result<(), UnmountError> {
        let mut command = Command::new(HELPER);
        command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(&self.point);
        let command = command.env("LC_ALL", "C").stdin(Stdio::null());
        let Output { status, stderr, .. } =
            command.output().map_err(|error| self.unmount_error(error))?;
        if status.success() || !self.is_there() {
            return Ok(());
        }
        let says = String::from_utf8_lossy(&stderr);
        if says.contains("busy") {
            Err(UnmountError::Busy(self.point.clone()))
        } else if says.contains("not permitted") {
            Err(UnmountError::NoPermission(self.point.clone()))
        } else {
            Err(self.unmount_error(io::Error::other(says.trim().to_owned())))
        }
    }

    /// Returns whether our mount is still on the mount point.
    fn is_there(&self) -> bool {
        match (mountinfo::at(&self.point), &self.entry) {
            (Ok(Some(found)), Some(ours)) => found.device == ours.device,
            (Ok(None), _) => false,
            _ => true,
        }
    }

    fn unmount_error(&self, source: io::Error) -> UnmountError {
        UnmountError::Kernel { point: self.point.clone(), source }
    }
}

fn mount_directly(point: &Point, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let over = path_of(&point.directory);
    let point = point.path.as_path();
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    let device = OwnedFd::from(device.map_err(|error| match error.raw_os_error() {
        Some(number) => device_error(point, Errno::from_raw_os_error(number)),
        None => MountError::Kernel(error),
    })?);
    let mut flags = MountFlags::empty();
    // Programs in a volume get no more rights than their user has, unless root wants it.
    flags.set(MountFlags::NOSUID, !options.trusts.suid);
    flags.set(MountFlags::NODEV, !options.trusts.dev);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOATIME, options.atime == Atime::Never);
    flags.set(MountFlags::STRICTATIME, options.atime == Atime::Always);
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw(),
        limits::IO_BYTES
    );
    let data = CString::new(data).expect("digits and letters");
    match mount(options.fs_name.as_str(), &over, FS_TYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(error) => Err(device_error(point, error)),
    }
}

fn device_error(point: &Path, error: Errno) -> MountError {
    match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        Errno::PERM | Errno::ACCESS => MountError::NoPermission(point.to_owned()),
        error => MountError::Kernel(error.into()),
    }
}

/// Mounts through the helper, which gets a socket as standard input and sends the device over it.
fn ask_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::Kernel)?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options)).arg("--").arg(point);
    command.env(HELPER_SOCKET, "0").env("LC_ALL", "C");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => MountError::Kernel(error),
    })?;
    // Closes our copy of the helper's end: else the socket would stay open if the helper fails.
    drop(command);
    let received = receive_descriptor(&ours);
    let says = error_output(child).map_err(MountError::Kernel)?;
    match received {
        Ok(Some(descriptor)) => Ok(descriptor),
        Ok(None) => Err(helper_error(point, &says)),
        Err(error) => Err(MountError::Kernel(error)),
    }
}

fn helper_options(options: &MountOptions) -> String {
    let name = options.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let subtype = FS_TYPE.trim_start_matches("fuse.");
    let mut said = format!(
        "fsname={name},subtype={subtype},default_permissions,max_read={}",
        limits::IO_BYTES
    );
    if options.read_only {
        said.push_str(",ro");
    }
    if options.atime == Atime::Never {
        said.push_str(",noatime");
    }
    said
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut byte)];
    loop {
        match recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    Ok(descriptors.next())
}

fn error_output(mut child: Child) -> io::Result<String> {
    let mut says = Vec::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_end(&mut says)?;
    }
    child.wait()?;
    Ok(String::from_utf8_lossy(&says).trim().to_owned())
}

fn helper_error(point: &Path, says: &str) -> MountError {
    let has = |words: &str| says.contains(words);
    if has("fuse device not found") || (has(DEVICE) && has("No such file")) {
        MountError::NoDevice
    } else if has("not permitted") || has("ermission denied") || has("no write access") {
        MountError::NoPermission(point.to_owned())
    } else {
        MountError::Helper { says: says.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{IoUring, Keeps, Trusts};

    #[test]
    fn commas_in_names_are_escaped_for_the_helper() {
        let options = MountOptions {
            mount_point: PathBuf::from("/mnt"),
            fs_name: "a,b\\c".to_owned(),
            read_only: true,
            atime: Atime::Never,
            trusts: Trusts::default(),
            passthrough: false,
            inode_table_bytes: 0,
            io_uring: IoUring::Never,
            keeps: Keeps::default(),
        };
        let said = helper_options(&options);
        assert!(said.starts_with("fsname=a\\,b\\\\c,subtype=pelago,"), "{said}");
        assert!(said.ends_with(",ro,noatime"), "{said}");
    }

    #[test]
    fn messages_of_the_helper_become_errors() {
        let point = Path::new("/mnt");
        let missing = "fusermount3: fuse device not found, try 'modprobe fuse' first";
        assert!(matches!(helper_error(point, missing), MountError::NoDevice));
        let denied = "fusermount3: user has no write access to mountpoint /mnt";
        assert!(matches!(helper_error(point, denied), MountError::NoPermission(_)));
        let other = "fusermount3: too many FUSE filesystems mounted; mount_max=N can be set";
        assert!(matches!(helper_error(point, other), MountError::Helper { .. }));
    }
}
