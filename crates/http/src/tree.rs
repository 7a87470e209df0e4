//! Resolution of paths in the served tree, with access checks for the server's user.

use std::collections::VecDeque;
use std::sync::Arc;

use pelago_client::{At, Files, Pending};
use pelago_wire::{
    Attr, Code, Context, Entry, Error, FileKind, Handle, ModeRights, Name, Pins, xattr,
};
use tokio::sync::oneshot;

use crate::access::ReadAs;
use crate::target::Target;

/// The limit for symbolic links in one path, the same as on Linux (path_resolution(7)).
const LINKS: u32 = 40;

/// A tree, and the user as whom it is read.
pub(crate) struct Tree {
    pub(crate) files: Files,
    pub(crate) reader: ReadAs,
    /// Pins the files that are sent.
    pub(crate) pins: Arc<dyn Pins>,
}

/// The reason why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A name on the path does not exist.
    NotFound,
    /// The server's user has no permission.
    Forbidden,
    /// A file or directory has an access control list, which the server does not evaluate.
    HasAcl,
    /// A symbolic link leads out of the tree.
    LeadsOut,
    /// There are too many symbolic links.
    TooManyLinks,
    /// An operation of the server has failed.
    Failed(Error),
}

/// A step of a path.
enum Step {
    Down(Name),
    Up,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error.code {
            Code::NotFound | Code::NotDirectory | Code::Stale => Self::NotFound,
            _ => Self::Failed(error),
        }
    }
}

/// Waits for the result of an operation.
pub(crate) async fn wait<T: Send + 'static>(pending: Pending<T>) -> Result<T, Error> {
    let (sender, result) = oneshot::channel();
    pending.then(move |result| {
        // The request may be gone by now.
        let _unheard = sender.send(result);
    });
    result.await.unwrap_or(Err(Code::Unavailable.into()))
}

impl Tree {
    pub(crate) const fn context(&self) -> Context {
        Context::direct(self.reader.uid, 0)
    }

    /// Resolves a path. Symbolic links are followed within the tree.
    pub(crate) async fn find(&self, target: &Target) -> Result<Entry, Refusal> {
        let root = wait(self.files.get_attr(&self.context(), Handle::ROOT)).await?;
        let mut at = vec![Entry { handle: Handle::ROOT, attr: root }];
        let mut steps: VecDeque<Step> = target.names.iter().cloned().map(Step::Down).collect();
        let mut links = 0;
        while let Some(step) = steps.pop_front() {
            let Some(dir) = at.last() else { return Err(Refusal::LeadsOut) };
            if dir.attr.kind != FileKind::Directory {
                return Err(Refusal::NotFound);
            }
            self.check(ModeRights::SEARCH, dir).await?;
            let name = match step {
                Step::Up if at.len() == 1 => return Err(Refusal::LeadsOut),
                Step::Up => {
                    at.pop();
                    continue;
                }
                Step::Down(name) => name,
            };
            let found = wait(self.files.lookup(&self.context(), At::new(dir.handle, name))).await?;
            if found.attr.kind != FileKind::Symlink {
                at.push(found);
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Refusal::TooManyLinks);
            }
            let leads_to = wait(self.files.read_link(&self.context(), found.handle)).await?;
            for step in steps_of(&leads_to)?.into_iter().rev() {
                steps.push_front(step);
            }
        }
        at.pop()
            .filter(|it| !target.is_dir || it.attr.kind == FileKind::Directory)
            .ok_or(Refusal::NotFound)
    }

    /// Checks that the server's user has these rights.
    pub(crate) async fn check(&self, wanted: ModeRights, entry: &Entry) -> Result<(), Refusal> {
        if self.reader.uid != 0 && self.has_acl(entry.handle, &entry.attr).await? {
            return Err(Refusal::HasAcl);
        }
        if self.reader.may(wanted, &entry.attr) { Ok(()) } else { Err(Refusal::Forbidden) }
    }

    async fn has_acl(&self, node: Handle, attr: &Attr) -> Result<bool, Refusal> {
        if !attr.has_xattrs {
            return Ok(false);
        }
        let name = xattr::ACL_ACCESS.to_vec();
        match wait(self.files.get_xattr(&self.context(), node, name)).await {
            Ok(_) => Ok(true),
            Err(Error { code: Code::NoXattr }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the steps of the target of a symbolic link.
fn steps_of(target: &[u8]) -> Result<Vec<Step>, Refusal> {
    if target.first() == Some(&b'/') {
        return Err(Refusal::LeadsOut);
    }
    let names = target.split(|byte| *byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    names
        .map(|name| match name {
            b".." => Ok(Step::Up),
            name => Name::new(name).map(Step::Down).map_err(|_no_name| Refusal::NotFound),
        })
        .collect()
}
