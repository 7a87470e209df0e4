//! The index of a program without an engine: it cannot be opened.

use std::convert::Infallible;

use pelago_find::Expr;
use pelago_folder::Folder;
use pelago_wire::{Handle, InodeId, Time};

use crate::candidates::{Candidates, TextHit};
use crate::covered::Covered;
use crate::document::Document;
use crate::error::Error;

/// The index of names of one shard: there is none.
#[derive(Debug)]
pub struct Names(Infallible);

/// The index of texts of one shard: there is none.
#[derive(Debug)]
pub struct Texts(Infallible);

/// Returns `false`: there is no engine whose panics would be caught.
#[must_use]
pub const fn panics_are_caught() -> bool {
    false
}

#[expect(missing_docs, reason = "as with an engine, if there were one")]
#[expect(clippy::missing_errors_doc, reason = "the same")]
impl Names {
    /// # Errors
    /// [`Error::NoEngine`].
    pub fn open(_folder: &Folder) -> Result<Self, Error> {
        Err(Error::NoEngine)
    }

    #[must_use]
    pub const fn covered(&self) -> Option<Covered> {
        match self.0 {}
    }

    pub const fn replace(&self, _ino: InodeId, _documents: &[Document]) -> Result<(), Error> {
        match self.0 {}
    }

    pub const fn commit(&self, _covered: &Covered) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn candidates(
        &self,
        _expr: &Expr,
        _now: Time,
        _uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Candidates, Error> {
        match self.0 {}
    }

    pub fn count(
        &self,
        _expr: &Expr,
        _now: Time,
        _uid_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<u64, Error> {
        match self.0 {}
    }

    pub const fn total(&self) -> Result<u64, Error> {
        match self.0 {}
    }

    pub const fn documents_of(&self, _ino: InodeId) -> Result<Vec<Document>, Error> {
        match self.0 {}
    }
}

#[expect(missing_docs, reason = "as with an engine, if there were one")]
#[expect(clippy::missing_errors_doc, reason = "the same")]
impl Texts {
    /// # Errors
    /// [`Error::NoEngine`].
    pub fn open(_folder: &Folder) -> Result<Self, Error> {
        Err(Error::NoEngine)
    }

    #[must_use]
    pub const fn covered(&self) -> Option<Covered> {
        match self.0 {}
    }

    pub const fn version(&self, _ino: InodeId) -> Result<Option<u64>, Error> {
        match self.0 {}
    }

    pub const fn replace(&self, _file: Handle, _version: u64, _text: &str) -> Result<(), Error> {
        match self.0 {}
    }

    pub const fn remove(&self, _ino: InodeId) -> Result<(), Error> {
        match self.0 {}
    }

    pub const fn commit(&self, _covered: &Covered) -> Result<(), Error> {
        match self.0 {}
    }

    pub const fn search(&self, _words: &[String], _most: usize) -> Result<Vec<TextHit>, Error> {
        match self.0 {}
    }
}
