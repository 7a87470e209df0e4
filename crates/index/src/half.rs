//! One half of a search index, of names or of texts: a folder of the engine's files, one writer,
//! and a view of the last commit.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pelago_folder::Folder;
use pelago_wire::InodeId;
use pelago_wire::limits::{
    INDEX_INODES, INDEX_MEMORY_BYTES, INDEX_QUEUE_BYTES, INDEX_TEXT_BYTES, INDEX_WRITER_BYTES,
};
use tantivy::indexer::{IndexWriterOptions, UserOperation};
use tantivy::schema::{Document, Field, Schema};
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{Index, IndexReader, IndexSettings, IndexWriter, ReloadPolicy, Searcher, Term};

use crate::checksums;
use crate::covered::Covered;
use crate::directory::Files;
use crate::error::Error;
use crate::merges::BoundedMerges;
use crate::panics::catch_panic;
use crate::queue::{Queue, Waiting};

/// The name of the tokenizer of texts.
pub(crate) const TOKENIZER: &str = "words";

/// The files that name all others.
const FILES: [&str; 2] = ["meta.json", ".managed.json"];

// What a writer gathers may be exceeded by one text, which can have words of four times its bytes.
const _: () = assert!(
    2 * (INDEX_WRITER_BYTES + INDEX_QUEUE_BYTES) + 5 * INDEX_TEXT_BYTES <= INDEX_MEMORY_BYTES,
    "writers and what waits for them fit into the memory of an index"
);

/// One of the two indexes of a shard, of documents of one kind.
pub(crate) struct Half<D: Document> {
    folder: PathBuf,
    /// The field by which documents are replaced.
    ino: Field,
    reader: IndexReader,
    /// `None` after an error.
    writer: Mutex<Option<Writer<D>>>,
    covered: Mutex<Option<Covered>>,
    /// Whether a write has found the disk full.
    is_full: Arc<AtomicBool>,
}

struct Writer<D: Document> {
    engine: IndexWriter<Waiting<D>>,
    queue: Arc<Queue>,
    /// Inodes that were replaced since the last commit, as far as they are remembered.
    replaced: HashSet<InodeId>,
}

impl<D: Document> Half<D> {
    /// Opens the index in a folder of this name, or makes one in an empty folder. Reads every file
    /// once, so that damage is found here and not by a thread of the engine.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) fn open(
        parent: &Folder,
        name: &str,
        schema: Schema,
        ino: Field,
        tokenizer: Option<TextAnalyzer>,
    ) -> Result<Self, Error> {
        let path = parent.path().join(name);
        let folder = parent.create_folder(name).map_err(|error| Error::of_folder(&path, error))?;
        let is_new = is_empty(&folder)?;
        let opened = Self::open_prepared(folder, schema, ino, tokenizer);
        if is_new && opened.is_err() {
            // The next try is not to find a part of an index. If this fails, it finds damage.
            let _removed = parent.remove_tree(name);
        }
        opened
    }

    fn open_prepared(
        inner: Folder,
        schema: Schema,
        ino: Field,
        tokenizer: Option<TextAnalyzer>,
    ) -> Result<Self, Error> {
        let folder = inner.path();
        let opened = call_engine(folder, || {
            let settings = IndexSettings {
                docstore_compress_dedicated_thread: false,
                ..IndexSettings::default()
            };
            let builder = Index::builder().schema(schema).settings(settings);
            let files = Files::of(inner.clone());
            let index = builder.open_or_create(files.clone())?;
            if let Some(tokenizer) = tokenizer {
                index.tokenizers().register(TOKENIZER, tokenizer);
            }
            let damaged = checksums::damaged(&index, &files)?;
            Ok((index, damaged, files.is_full()))
        });
        let (index, damaged, is_full) = opened?;
        if let Some(file) = damaged {
            let what = format!("the checksum of {} is wrong", file.display());
            return Err(Error::Damaged { folder: folder.to_owned(), what });
        }
        let (reader, payload) = call_engine(folder, || {
            let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual);
            let reader = reader.doc_store_cache_num_blocks(1).try_into()?;
            Ok((reader, index.load_metas()?.payload))
        })?;
        let foreign = |what: String| Error::Foreign { folder: folder.to_owned(), what };
        let covered = match payload {
            None => None,
            Some(text) => Some(Covered::from_text(&text).ok_or_else(|| foreign(text))?),
        };
        Ok(Self {
            folder: folder.to_owned(),
            ino,
            reader,
            writer: Mutex::new(Some(Writer::open(&inner, &index)?)),
            covered: Mutex::new(covered),
            is_full,
        })
    }

    /// Returns what the last commit covers; `None` before the first one.
    pub(crate) fn covered(&self) -> Option<Covered> {
        *self.covered.lock()
    }

    /// Asks the documents of the last commit.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) fn search<T>(
        &self,
        call: impl FnOnce(&Searcher) -> tantivy::Result<T>,
    ) -> Result<T, Error> {
        call_engine(&self.folder, || call(&self.reader.searcher()))
    }

    /// Deletes all documents of an inode and adds these, each with its approximate number of bytes.
    ///
    /// # Errors
    /// See [`Error`]. All that was not committed is then lost.
    pub(crate) fn replace(
        &self,
        ino: InodeId,
        documents: impl Iterator<Item = (D, usize)>,
    ) -> Result<(), Error> {
        self.write(|half, writer| {
            let term = Term::from_field_u64(half.ino, ino.raw());
            // A deletion costs a search of every part at the commit, also if it finds nothing.
            if writer.may_have(ino) || half.has(&term)? {
                writer.engine.delete_term(term);
            }
            for (document, bytes) in documents {
                writer.remember(ino);
                while !writer.queue.has_room(bytes) {
                    writer.ask_whether_it_runs(half.ino)?;
                }
                writer.engine.add_document(writer.queue.enter(document, bytes))?;
            }
            Ok(())
        })
    }

    /// Makes all changes durable and visible.
    ///
    /// # Errors
    /// See [`Error`]. The last commit is then what it was, or this one.
    pub(crate) fn commit(&self, covered: &Covered) -> Result<(), Error> {
        self.write(|half, writer| {
            let mut commit = writer.engine.prepare_commit()?;
            commit.set_payload(&covered.to_text());
            commit.commit()?;
            half.reader.reload()?;
            writer.replaced.clear();
            *half.covered.lock() = Some(*covered);
            Ok(())
        })
    }

    /// Returns whether the last commit has a document with a term.
    fn has(&self, term: &Term) -> tantivy::Result<bool> {
        for part in self.reader.searcher().segment_readers() {
            if part.inverted_index(term.field())?.get_term_info(term)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn write(
        &self,
        call: impl FnOnce(&Self, &mut Writer<D>) -> tantivy::Result<()>,
    ) -> Result<(), Error> {
        let mut locked = self.writer.lock();
        let Some(writer) = locked.as_mut() else {
            return Err(Error::Stopped { folder: self.folder.clone() });
        };
        let done = call_engine(&self.folder, || {
            call(self, writer).map_err(|error| {
                // If a thread of the engine has failed, the commit has its error.
                writer.engine.prepare_commit().err().unwrap_or(error)
            })
        });
        let Err(error) = done else { return Ok(()) };
        *locked = None;
        if self.is_full.load(Ordering::Relaxed) {
            return Err(Error::Full { folder: self.folder.clone() });
        }
        Err(error)
    }
}

impl<D: Document> Writer<D> {
    fn open(folder: &Folder, index: &Index) -> Result<Self, Error> {
        call_engine(folder.path(), || {
            let options = IndexWriterOptions::builder()
                .memory_budget_per_thread(INDEX_WRITER_BYTES)
                .num_worker_threads(1)
                .num_merge_threads(1);
            let engine = index.writer_with_options(options.build())?;
            engine.set_merge_policy(Box::new(BoundedMerges::new(folder)));
            Ok(Self { engine, queue: Arc::default(), replaced: HashSet::new() })
        })
    }

    /// Fails if the indexing thread has ended. The deletion makes the engine ask; no document has
    /// its term, which is shorter than each inode.
    fn ask_whether_it_runs(&self, ino: Field) -> tantivy::Result<()> {
        let none = UserOperation::Delete(Term::from_field_bytes(ino, &[]));
        self.engine.run([none]).map(|_stamp| ())
    }

    /// Returns whether there may be documents of an inode that are not committed.
    fn may_have(&self, ino: InodeId) -> bool {
        self.replaced.len() >= INDEX_INODES || self.replaced.contains(&ino)
    }

    fn remember(&mut self, ino: InodeId) {
        if self.replaced.len() < INDEX_INODES {
            self.replaced.insert(ino);
        }
    }
}

/// Returns whether there is no index in a folder yet. Otherwise looks for the files without which
/// the engine begins a new one in it.
fn is_empty(folder: &Folder) -> Result<bool, Error> {
    let failed = |error| Error::of_folder(folder.path(), error);
    let is_new = folder.entries().map_err(failed)?.is_empty();
    for file in FILES {
        if !is_new && !folder.contains(file).map_err(failed)? {
            let what = format!("{file} is missing");
            return Err(Error::Damaged { folder: folder.path().to_owned(), what });
        }
    }
    Ok(is_new)
}

/// Calls the engine.
fn call_engine<T>(folder: &Path, call: impl FnOnce() -> tantivy::Result<T>) -> Result<T, Error> {
    match catch_panic(call) {
        Ok(done) => done.map_err(|error| Error::of_engine(folder, error)),
        Err(what) => Err(Error::Damaged { folder: folder.to_owned(), what }),
    }
}
