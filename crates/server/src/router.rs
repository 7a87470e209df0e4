//! Decides at which site a request is carried out.
//!
//! The home of a node is the site in its number, so no row is read. What names nodes of two homes
//! is refused: no operation changes two sites at once.

use pelago_wire::{Code, OpenId, Request};

/// Where a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Here.
    Here,
    /// At this site.
    There(u16),
    /// Nowhere.
    Refused(Code),
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// The server's own mount, or a client.
    Client,
    /// The server of another site. What it asks is never sent on, so that no request goes round.
    Site,
}

/// Returns where a request is carried out by the server of site `own`. `home_of` returns the home
/// of an open that is at another site.
pub(crate) fn route(
    own: u16,
    by: AskedBy,
    request: &Request,
    home_of: impl Fn(OpenId) -> Option<u16>,
) -> Route {
    match request {
        Request::Step { .. } | Request::AddDir { .. } | Request::SiteAddress { .. } => {
            return match by {
                AskedBy::Site => Route::Here,
                AskedBy::Client => Route::Refused(Code::AccessDenied),
            };
        }
        Request::GetLock { open, .. }
        | Request::SetLock { open, .. }
        | Request::ReclaimLock { open, .. } => {
            return match home_of(*open) {
                Some(_) => Route::Refused(Code::NoLocks),
                None => Route::Here,
            };
        }
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::CreateUnnamed { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::ReadLink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Open { .. }
        | Request::Reopen { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::StatFs
        | Request::Allocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::Search { .. }
        | Request::Tags { .. }
        | Request::Revoke { .. }
        | Request::Servers => {}
    }
    let subjects = request.describe().subjects;
    let of_inodes = subjects.each_inode().map(|ino| ino.site());
    let of_opens = subjects.each_open().map(|open| home_of(open).unwrap_or(own));
    let mut homes = of_inodes.chain(of_opens);
    let Some(first) = homes.next() else { return Route::Here };
    match (homes.all(|home| home == first), by) {
        (false, _) => Route::Refused(Code::CrossHome),
        (true, _) if first == own => Route::Here,
        (true, AskedBy::Client) => Route::There(first),
        (true, AskedBy::Site) => Route::Refused(Code::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Handle, InodeId, Name, RenameFlags};

    use super::*;

    const OWN: u16 = 1;

    fn node(site: u16) -> Handle {
        Handle::own(InodeId::new(site, 0, 9).unwrap())
    }

    fn routed(by: AskedBy, request: &Request) -> Route {
        route(OWN, by, request, |open| (open.0 >= 100).then_some(0))
    }

    fn name() -> Name {
        Name::new(b"name").unwrap()
    }

    #[test]
    fn a_request_goes_to_the_home_of_what_it_names() {
        let open = |open| Request::Read { open: OpenId(open), offset: 0, size: 1 };
        for (request, home) in [
            (Request::GetAttr { node: node(OWN) }, Route::Here),
            (Request::GetAttr { node: node(0) }, Route::There(0)),
            (Request::GetAttr { node: node(7) }, Route::There(7)),
            (open(1), Route::Here),
            (open(100), Route::There(0)),
            (Request::StatFs, Route::Here),
        ] {
            assert_eq!(routed(AskedBy::Client, &request), home, "{request:?}");
        }
    }

    #[test]
    fn no_request_changes_two_homes() {
        let rename = |from: u16, to: u16| Request::Rename {
            from_dir: node(from),
            from: name(),
            to_dir: node(to),
            to: name(),
            flags: RenameFlags::Replace,
        };
        assert_eq!(routed(AskedBy::Client, &rename(0, 0)), Route::There(0));
        for (from, to) in [(0, 1), (1, 0), (0, 2)] {
            let routed = routed(AskedBy::Client, &rename(from, to));
            assert_eq!(routed, Route::Refused(Code::CrossHome));
        }
        let link = Request::Link { node: node(0), dir: node(1), name: name() };
        assert_eq!(routed(AskedBy::Client, &link), Route::Refused(Code::CrossHome));
        let copy = Request::CopyRange {
            from: OpenId(1),
            from_offset: 0,
            to: OpenId(100),
            to_offset: 0,
            length: 1,
        };
        assert_eq!(routed(AskedBy::Client, &copy), Route::Refused(Code::CrossHome));
    }

    #[test]
    fn what_a_site_asks_is_not_sent_on() {
        let foreign = Request::GetAttr { node: node(0) };
        assert_eq!(routed(AskedBy::Site, &foreign), Route::Refused(Code::Elsewhere));
        let up = Request::Step { dir: node(0), to: None };
        assert_eq!(routed(AskedBy::Site, &up), Route::Here);
        assert_eq!(routed(AskedBy::Client, &up), Route::Refused(Code::AccessDenied));
    }
}
