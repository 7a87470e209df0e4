//! A share by a guest, who passes on a part of what was shared with him. No server is asked: his
//! own credentials and the new one are a chain, which the server evaluates when it is used.

use std::path::Path;

use pelago_keynote::unarmor;
use pelago_net::key::PublicKey;
use pelago_wire::InodeId;

use super::error::{ShareError, elsewhere, not_here};
use super::folder::{Directory, examine};
use super::{Shared, Terms};
use crate::control::{AskError, ControlReply, Request, ask};
use crate::credential::{Chain, Wanted, Whereabouts};
use crate::failure::{Exit, Failure, Outcome};
use crate::licensed_key::licensed_key;
use crate::locate;
use crate::moment::Moment;
use crate::up_volume::PATIENCE;

/// Signs a credential for a folder in the mount at `point`, whose process has the socket in `dir`.
pub(super) fn share(
    dir: &Path,
    point: &Path,
    path: &Path,
    to: &PublicKey,
    terms: &Terms,
) -> Outcome<Shared> {
    let chain = chain_of(dir, point, path)?;
    let key = licensed_key(&chain.last.licensees().collect::<Vec<_>>())?;
    let address = chain.address()?;
    let directory = examine(point, path)?.outside(&chain);
    let wanted = Wanted {
        rights: terms.rights,
        may_share: terms.may_share,
        until: terms.until.as_deref(),
        from: terms.from,
    };
    let grant =
        chain.narrowed(directory.ino.raw(), wanted, &Moment::now().digits()).map_err(|source| {
            Failure::new(Exit::Denied, ShareError::Narrow { path: path.to_owned(), source })
                .hint("ask for more the person who has shared it with you, or ask for less")
        })?;
    if directory.ino.site() != InodeId::from_raw(chain.last.share.directory).site() {
        return Err(elsewhere(path));
    }
    let mut texts = chain.texts();
    texts.push(directory.credential(&address, to, &grant, &key)?);
    Ok(Shared { chain: texts, grant, to: *to, address, spare: None })
}

/// Asks the process of a mount for the credentials by which it is a guest.
fn chain_of(dir: &Path, point: &Path, path: &Path) -> Outcome<Chain> {
    let silent =
        |exit, source| Failure::new(exit, ShareError::Silent { point: point.to_owned(), source });
    let block = match ask(dir, Request::Credentials, PATIENCE) {
        Ok((ControlReply::Credentials(block), _)) => block,
        // It is a mount of a machine that the server knows.
        Err(AskError::Refused { .. }) => return Err(not_here(locate::absolute(path)?)),
        Ok(_) => return Err(silent(Exit::Failed, AskError::Garbled)),
        Err(error) => {
            return Err(silent(Exit::Unreachable, error).hint("attach the folder again"));
        }
    };
    let texts = unarmor(&block).map_err(|error| Failure::new(Exit::Failed, error))?;
    Chain::parse(&texts).map_err(|error| Failure::new(Exit::Failed, ShareError::Mounted(error)))
}

impl Directory {
    /// Returns the folder with the inode numbers of the server, which has another one for the root
    /// of the mount.
    fn outside(self, chain: &Chain) -> Self {
        let attached = InodeId::from_raw(chain.last.share.directory);
        if !self.is_root {
            let parent = if self.parent == InodeId::ROOT { attached } else { self.parent };
            return Self { parent, ..self };
        }
        let comment = chain.last.credential.comment();
        Self {
            ino: attached,
            parent: Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT),
            // Not that of the mount point, which the guest has chosen.
            name: Whereabouts::name_in(comment).map_or(self.name, str::to_owned),
            ..self
        }
    }
}
