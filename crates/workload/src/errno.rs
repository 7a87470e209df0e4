//! Error numbers of Linux, by which answers of different file systems are compared.

use pelago_wire::Code;
use rustix::io::Errno;

/// The error number a program sees for `code`.
pub(crate) const fn number_of(code: Code) -> i32 {
    let errno = match code {
        Code::NotFound => Errno::NOENT,
        Code::Exists => Errno::EXIST,
        Code::NotDirectory => Errno::NOTDIR,
        Code::IsDirectory => Errno::ISDIR,
        Code::NotEmpty => Errno::NOTEMPTY,
        Code::NotPermitted => Errno::PERM,
        Code::Invalid | Code::WouldLoop => Errno::INVAL,
        Code::BadOpen => Errno::BADF,
        Code::NoXattr => Errno::NODATA,
        _ => Errno::IO,
    };
    errno.raw_os_error()
}
