//! What a request of this client changes.

use pelago_wire::{InodeId, NameIn, OpenId, Touched, Touches};

use crate::kept::Kept;

/// Returns what a request changes, as far as it is known before it is carried out.
pub(crate) fn touched(
    touches: Touches<'_>,
    kept: &Kept,
    written: impl Fn(OpenId) -> Option<InodeId>,
) -> Vec<Touched> {
    match touches {
        Touches::Nothing => Vec::new(),
        // The bytes are kept by the cache below, which sees each change of them.
        Touches::Node(ino) | Touches::Contents(ino) => vec![Touched::Node(ino)],
        Touches::Bytes(open) | Touches::Release(open) => {
            written(open).map(Touched::Node).into_iter().collect()
        }
        Touches::NewName { at, of } => {
            let of = of.map(Touched::Node).into_iter();
            of.chain([Touched::Node(at.dir.ino), Touched::from(at)]).collect()
        }
        Touches::OldName(at) => {
            let mut all = vec![Touched::Node(at.dir.ino), Touched::from(at)];
            all.extend(led_to(kept, at));
            all
        }
        Touches::Move { from, to } => {
            let mut all = vec![Touched::Node(from.dir.ino), Touched::from(from), Touched::from(to)];
            all.extend((to.dir.ino != from.dir.ino).then_some(Touched::Node(to.dir.ino)));
            all.extend(led_to(kept, from));
            all.extend(led_to(kept, to));
            all
        }
    }
}

fn led_to(kept: &Kept, at: NameIn<'_>) -> Option<Touched> {
    kept.name(at.dir.ino, at.name).flatten().map(|led_to| Touched::Node(led_to.ino))
}
