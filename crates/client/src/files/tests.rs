use pelago_wire::{DataPath, FileKind, Time};

use super::*;

/// A server that creates each file, and issues credentials or does not.
struct Fake {
    issues: Result<Vec<Vec<u8>>, Error>,
    /// True if another thread answers.
    is_slow: bool,
}

fn entry_of(ino: u64) -> Entry {
    let ino = InodeId::from_raw(ino);
    let never = Time { seconds: 0, nanos: 0 };
    let attr = Attr {
        ino,
        kind: FileKind::Regular,
        mode: 0o600,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        btime: never,
        volatile: false,
        has_xattrs: false,
    };
    Entry { handle: Handle::own(ino), attr }
}

impl Service for Fake {
    fn ask(
        &self,
        _context: &Context,
        request: Request,
        _bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let reply = match request {
            Request::Create { .. } => {
                Ok(Reply::Created { entry: entry_of(7), path: DataPath::Cached })
            }
            Request::Issue { node } if node == entry_of(7).handle => {
                self.issues.clone().map(Reply::Issued)
            }
            _ => Err(Code::Bug.into()),
        };
        if !self.is_slow {
            return Some(reply);
        }
        let done = later();
        let answers = std::thread::Builder::new().name("server".to_owned());
        answers.spawn(move || done(reply)).unwrap();
        None
    }
}

fn created(issues: Result<Vec<Vec<u8>>, Error>, is_slow: bool) -> CreatedWithCredential {
    let files = Files::new(Arc::new(Fake { issues, is_slow }));
    let name = Name::new(b"made").unwrap();
    let at = At { dir: Handle::ROOT, name };
    let mode = NewMode::exactly(0o600);
    let context = Context::direct(0, 0);
    files.create_with_credential(&context, at, mode, OpenFlags::READ_WRITE).wait().unwrap()
}

#[test]
fn a_file_is_created_with_its_credential_or_without_one() {
    for is_slow in [false, true] {
        let chain = vec![b"a credential".to_vec()];
        let made = created(Ok(chain.clone()), is_slow);
        assert_eq!(made.created.entry, entry_of(7));
        assert_eq!(made.credential, Ok(chain));
        let refused = Err(Code::NotSupported.into());
        let made = created(refused.clone(), is_slow);
        assert_eq!(made.created.entry, entry_of(7), "the file is there");
        assert_eq!(made.credential, refused);
    }
}
