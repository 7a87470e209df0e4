//! A page of an answer, and its end.

use pelago_wire::{Hit, limits};

/// The work of comparing one text with a query, in names.
const TEXT_NAMES: u32 = 64;

/// A page that is being filled. It ends by counts and never by a clock, so that the same rows give
/// the same pages.
#[derive(Debug)]
pub(super) struct Page {
    hits: Vec<Hit>,
    bytes: usize,
    most: usize,
    examined: u32,
    /// The rest of the work for this page, in names.
    left: u32,
}

impl Page {
    /// Returns an empty page for up to `hits` files.
    pub(super) fn new(hits: u32) -> Self {
        let most = hits.clamp(1, limits::PAGE_HITS) as usize;
        Self { hits: Vec::new(), bytes: 0, most, examined: 0, left: limits::PAGE_NAMES }
    }

    /// Empties the page, to fill it in another order.
    pub(super) fn restart(&mut self) {
        *self = Self { most: self.most, ..Self::new(1) };
    }

    /// Counts a name that is compared with the query, in the reply and in the work, with the texts
    /// that were read for it.
    pub(super) fn examine(&mut self, texts: u32) {
        self.show_examined();
        self.work(texts);
    }

    /// Counts a name in the number that the reply has.
    pub(super) const fn show_examined(&mut self) {
        self.examined += 1;
    }

    /// Counts a name in the work for this page, and the texts that were read for it.
    pub(super) fn work(&mut self, texts: u32) {
        self.left = self.left.saturating_sub(1 + texts.saturating_mul(TEXT_NAMES));
    }

    /// Counts further work for this page, in names.
    pub(super) const fn work_also(&mut self, names: u32) {
        self.left = self.left.saturating_sub(names);
    }

    /// Returns the rest of the work for this page, in names.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }

    /// Returns whether the page takes no more names.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0 || self.hits.len() >= self.most
    }

    /// Adds a hit. Returns `false` if its bytes do not fit: the page is over before it. The first
    /// hit always fits.
    pub(super) fn add(&mut self, hit: Hit) -> bool {
        let bytes = self.bytes + hit.sent_bytes();
        if bytes > limits::HITS_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.hits.push(hit);
        true
    }

    /// Returns the hits, and the number of names for the reply.
    pub(super) fn into_hits(self) -> (Vec<Hit>, u64) {
        (self.hits, self.examined.into())
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, InodeId};

    use super::*;

    fn hit(bytes: usize) -> Hit {
        Hit { ino: InodeId::ROOT, kind: FileKind::Regular, path: vec![b'x'; bytes] }
    }

    #[test]
    fn a_page_ends_by_files_by_bytes_and_by_work() {
        let mut page = Page::new(2);
        assert!(page.add(hit(1)) && !page.is_over());
        assert!(page.add(hit(1)) && page.is_over());
        assert_eq!(page.into_hits().0.len(), 2);
        let mut page = Page::new(u32::MAX);
        let long = limits::HITS_BYTES / limits::HIT_PATH_BYTES;
        assert!((1..long).all(|_| page.add(hit(limits::HIT_PATH_BYTES))));
        assert!(!page.add(hit(limits::HIT_PATH_BYTES)));
        let mut page = Page::new(0);
        (1..limits::PAGE_NAMES).for_each(|_| page.examine(0));
        assert!(!page.is_over());
        page.examine(0);
        assert!(page.is_over());
        let mut page = Page::new(1);
        (0..limits::PAGE_NAMES / TEXT_NAMES).for_each(|_| page.examine(1));
        assert!(page.is_over());
        assert_eq!(page.into_hits().1, u64::from(limits::PAGE_NAMES / TEXT_NAMES));
    }

    #[test]
    fn a_page_that_begins_anew_has_no_hit_twice() {
        let mut page = Page::new(2);
        assert!(page.add(hit(1)));
        page.examine(3);
        page.restart();
        assert!(page.add(hit(1)) && !page.is_over(), "it takes two hits again");
        assert!(page.add(hit(1)) && page.is_over());
        let (hits, examined) = page.into_hits();
        assert_eq!((hits.len(), examined), (2, 0));
    }
}
