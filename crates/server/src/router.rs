//! The router between sites: decides at which site a request is carried out.
//!
//! The home of a node is the site in its inode id, so no row is read. A request that names nodes of
//! two homes is refused: no operation changes two sites at once.

use pelago_wire::{Code, Handle, InodeId, Name, NewMode, OpenId, Request};

/// The site at which a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// This site.
    Here,
    /// Another site, of this number.
    There(u16),
    /// None: the request fails with this error.
    Refused(Code),
}

/// The kind of session from which a request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The session of the server's own mount, or of a client.
    Client,
    /// The session of another site's server. Its requests are never sent on, so that none goes in a
    /// circle.
    Site,
}

/// The treatment of a request in a volume of several sites.
pub(crate) enum SiteRule<'a> {
    /// Only the server of another site may send it.
    FromSite,
    /// It sets a lock again that was held in an earlier run. The home of a file of another site
    /// has ended the lock with the session of that run.
    ReclaimLock(OpenId),
    /// It leads from a directory to the node at a name, or to the directory above for `None`. The
    /// home of what it finds may be another site than that of the directory.
    Walk { dir: Handle, to: Option<&'a Name> },
    /// It removes a directory, whose home may be another site than that of its name.
    RemoveDir { dir: Handle, name: &'a Name },
    /// Only the server of another site may send it: it removes a directory of this site whose name
    /// is at that one, in this directory.
    RemoveNamedDir { dir: Handle, parent: InodeId, name: &'a Name },
    /// It makes a directory, whose home is this site even if the name is at another one.
    MakeDir { dir: Handle, name: &'a Name, mode: NewMode },
    /// The home of the nodes that it names carries it out alone.
    AtHome,
}

/// Returns the treatment of a request in a volume of several sites. The match has no wildcard, so
/// the compiler names a new request here.
pub(crate) const fn site_rule(request: &Request) -> SiteRule<'_> {
    match request {
        Request::Step { .. }
        | Request::AddDir { .. }
        | Request::DropDir { .. }
        | Request::SiteAddress { .. }
        | Request::SiteList { .. }
        | Request::LeaveSite
        | Request::Charter { .. }
        | Request::Revoked { .. }
        | Request::PassRevocation { .. }
        | Request::CharterChanged
        | Request::SetBytes { .. }
        | Request::GiveBytes { .. }
        | Request::DropBytes { .. }
        | Request::Clock
        | Request::Hashes { .. }
        | Request::RenewToken { .. }
        | Request::KeepToken { .. } => SiteRule::FromSite,
        Request::RemoveNamedDir { dir, parent, name } => {
            SiteRule::RemoveNamedDir { dir: *dir, parent: *parent, name }
        }
        Request::RemoveDir { dir, name } => SiteRule::RemoveDir { dir: *dir, name },
        Request::ReclaimLock { open, .. } => SiteRule::ReclaimLock(*open),
        Request::Lookup { dir, name } => SiteRule::Walk { dir: *dir, to: Some(name) },
        Request::Parent { dir } => SiteRule::Walk { dir: *dir, to: None },
        Request::MakeDir { dir, name, mode } => SiteRule::MakeDir { dir: *dir, name, mode: *mode },
        Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::CreateUnnamed { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::ReadLink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::Rename { .. }
        | Request::Open { .. }
        | Request::Reopen { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::FsyncAt { .. }
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
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::Search { .. }
        | Request::Tags { .. }
        | Request::Attach { .. }
        | Request::Revoke { .. }
        | Request::Issue { .. }
        | Request::Access { .. }
        | Request::Audited { .. }
        | Request::Servers => SiteRule::AtHome,
    }
}

/// Returns the site at which the server of site `own` has a request carried out. `home_of` returns
/// the home of an open that is at another site.
pub(crate) fn route(
    own: u16,
    origin: Origin,
    request: &Request,
    home_of: impl Fn(OpenId) -> Option<u16>,
) -> Route {
    match site_rule(request) {
        SiteRule::FromSite | SiteRule::RemoveNamedDir { .. } => {
            return match origin {
                Origin::Site => Route::Here,
                Origin::Client => Route::Refused(Code::AccessDenied),
            };
        }
        SiteRule::ReclaimLock(open) => {
            return match home_of(open) {
                Some(_) => Route::Refused(Code::NoLocks),
                None => Route::Here,
            };
        }
        SiteRule::Walk { .. }
        | SiteRule::RemoveDir { .. }
        | SiteRule::MakeDir { .. }
        | SiteRule::AtHome => {}
    }
    let subjects = request.describe().subjects;
    let of_inodes = subjects.each_inode().map(|ino| ino.site());
    let of_opens = subjects.each_open().map(|open| home_of(open).unwrap_or(own));
    let mut homes = of_inodes.chain(of_opens);
    let Some(first) = homes.next() else { return Route::Here };
    match (homes.all(|home| home == first), origin) {
        (false, _) => Route::Refused(Code::CrossHome),
        (true, _) if first == own => Route::Here,
        (true, Origin::Client) => Route::There(first),
        (true, Origin::Site) => Route::Refused(Code::Elsewhere),
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::RenameFlags;

    use super::*;

    const OWN: u16 = 1;

    fn node(site: u16) -> Handle {
        Handle::own(InodeId::new(site, 0, 9).unwrap())
    }

    fn routed(origin: Origin, request: &Request) -> Route {
        route(OWN, origin, request, |open| (open.0 >= 100).then_some(0))
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
            assert_eq!(routed(Origin::Client, &request), home, "{request:?}");
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
        assert_eq!(routed(Origin::Client, &rename(0, 0)), Route::There(0));
        for (from, to) in [(0, 1), (1, 0), (0, 2)] {
            let routed = routed(Origin::Client, &rename(from, to));
            assert_eq!(routed, Route::Refused(Code::CrossHome));
        }
        let link = Request::Link { node: node(0), dir: node(1), name: name() };
        assert_eq!(routed(Origin::Client, &link), Route::Refused(Code::CrossHome));
        let copy = Request::CopyRange {
            from: OpenId(1),
            from_offset: 0,
            to: OpenId(100),
            to_offset: 0,
            length: 1,
        };
        assert_eq!(routed(Origin::Client, &copy), Route::Refused(Code::CrossHome));
    }

    #[test]
    fn a_request_of_a_site_is_not_sent_on() {
        let foreign = Request::GetAttr { node: node(0) };
        assert_eq!(routed(Origin::Site, &foreign), Route::Refused(Code::Elsewhere));
        let up = Request::Step { dir: node(0), to: None };
        assert_eq!(routed(Origin::Site, &up), Route::Here);
        assert_eq!(routed(Origin::Client, &up), Route::Refused(Code::AccessDenied));
    }
}
