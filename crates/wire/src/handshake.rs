//! The messages that begin and end a connection: [`Hello`], [`Welcome`], [`Refused`], [`Closing`].
//!
//! The bytes of a hello and of a refusal never change, so that programs of any two versions can
//! tell each other why they do not understand each other.

use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader};
use crate::codec::fields::Text;
use crate::error::Error;
use crate::id::SessionId;
use crate::{limits, version};

/// The first bytes of a hello. A text protocol would have to change them.
pub const MAGIC: [u8; 8] = *b"PELAGO\r\n";
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 96;

/// The client's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version of the wire that the client speaks.
    pub wire_min: u16,
    /// The newest version.
    pub wire_max: u16,
    /// The role of the client: [`Hello::CLIENT`], [`Hello::GUEST`], [`Hello::SITE`],
    /// [`Hello::BULK`], [`Hello::REVERSE`], [`Hello::MIRROR`] or [`Hello::RELAY`]. Later versions
    /// have [`crate::reserved::ROLES`].
    pub role: u16,
    /// The client will send no mutation.
    pub read_only: bool,
    /// The features that the client has, one bit each ([`crate::version::FEATURES`]).
    pub features: u64,
    /// Random bytes of the mounting process; another process has others.
    pub nonce: [u8; 16],
    /// The session that continues; `None` (0 in the bytes) for a new one.
    pub resume: Option<SessionId>,
    /// The volume; `None` (0 in the bytes) for the only one there.
    pub volume: Option<[u8; 16]>,
    /// The shard of the volume, from 0.
    pub shard: u16,
    /// The site whose server is wanted, from 0; clients and guests leave it 0, for the one there.
    pub site: u16,
}

const READ_ONLY: u16 = 1;

impl Hello {
    /// The role of a client.
    pub const CLIENT: u16 = 1;
    /// The role of a client that presents credentials ([`crate::present`]), over TLS only.
    pub const GUEST: u16 = 2;
    /// The role of the server of another site of the volume, over TLS only. With the first hello it
    /// presents its invitation ([`crate::present`]).
    pub const SITE: u16 = 3;
    /// The role of the server of another site that connects a second time, over TLS only: `resume`
    /// is its session, whose large frames go over this connection from then on.
    pub const BULK: u16 = 4;
    /// The role of a site's server that other sites cannot reach, over TLS only: the next hello
    /// comes from the other end, which asks this one from then on.
    pub const REVERSE: u16 = 5;
    /// The role of the primary of a volume that sends what changes to its mirror
    /// ([`crate::mirror`]), over TLS only.
    pub const MIRROR: u16 = 6;
    /// The role of a primary at a relay, and of a relay at the mirror ([`crate::relay`]), over TLS
    /// only.
    pub const RELAY: u16 = 7;

    /// Returns the message of a client of this version that begins a session, without features.
    #[must_use]
    pub const fn new(nonce: [u8; 16]) -> Self {
        Self {
            wire_min: version::OLDEST,
            wire_max: version::NEWEST,
            role: Self::CLIENT,
            read_only: false,
            features: 0,
            nonce,
            resume: None,
            volume: None,
            shard: 0,
            site: 0,
        }
    }

    /// Encodes the message. Bytes that mean nothing yet are zero.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let flags = if self.read_only { READ_ONLY } else { 0 };
        let mut out = [0; HELLO_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.wire_min.to_le_bytes());
        out[10..12].copy_from_slice(&self.wire_max.to_le_bytes());
        out[12..14].copy_from_slice(&self.role.to_le_bytes());
        out[14..16].copy_from_slice(&flags.to_le_bytes());
        out[16..24].copy_from_slice(&self.features.to_le_bytes());
        out[24..40].copy_from_slice(&self.nonce);
        out[40..48].copy_from_slice(&self.resume.map_or(0, |session| session.0).to_le_bytes());
        out[48..64].copy_from_slice(&self.volume.unwrap_or_default());
        out[64..66].copy_from_slice(&self.shard.to_le_bytes());
        out[66..68].copy_from_slice(&self.site.to_le_bytes());
        out
    }

    /// Decodes the message of a client of any version. Flags and bytes that mean nothing in this
    /// version are ignored: a newer client may use them, and must still get an answer.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if the length or the magic is wrong.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body, "Hello");
        if from.at("Hello.magic").array()? != MAGIC {
            return Err(from.invalid());
        }
        let wire_min = u16::take(from.at("Hello.wire_min"))?;
        let wire_max = u16::take(from.at("Hello.wire_max"))?;
        let role = u16::take(from.at("Hello.role"))?;
        let flags = u16::take(from.at("Hello.flags"))?;
        let features = u64::take(from.at("Hello.features"))?;
        let nonce = from.at("Hello.nonce").array()?;
        let resume = u64::take(from.at("Hello.resume"))?;
        let volume = from.at("Hello.volume").array()?;
        let shard = u16::take(from.at("Hello.shard"))?;
        let site = u16::take(from.at("Hello.site"))?;
        from.at("Hello.reserved").array::<28>()?;
        from.finish("Hello")?;
        let read_only = flags & READ_ONLY != 0;
        let resume = (resume != 0).then_some(SessionId(resume));
        let volume = (volume != [0; 16]).then_some(volume);
        Ok(Self {
            wire_min,
            wire_max,
            role,
            read_only,
            features,
            nonce,
            resume,
            volume,
            shard,
            site,
        })
    }
}

/// Messages whose fields follow each other; each is shorter than the limit of its frame.
macro_rules! messages {
    ($($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $says:literal])+ $field:ident: $as:ty => $type:ty,)+
    })+) => { $(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $says])+ pub $field: $type,)+
        }

        const _: () = assert!(0 $(+ <$as as Field>::MOST)+ <= limits::HANDSHAKE_BYTES);

        impl $name {
            /// Encodes the message.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $(let put = <$as as Field>::put(&self.$field, &mut out);
                debug_assert!(put.is_ok(), "each field has a value of any length");)+
                out
            }

            /// Decodes the message.
            ///
            /// # Errors
            /// Returns [`DecodeError`] if the body is no such message.
            pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
                let mut from = Reader::new(body, stringify!($name));
                let message = Self { $($field: {
                    let what = concat!(stringify!($name), ".", stringify!($field));
                    <$as as Field>::take(from.at(what))?
                },)+ };
                from.finish(stringify!($name))?;
                Ok(message)
            }
        }
    )+ };
}

messages! {
    /// The server's answer to a hello: the session.
    Welcome {
        /// The version of everything that follows.
        version: u16 => u16,
        /// The features that both ends have, one bit each.
        features: u64 => u64,
        /// The session, a new one or the one to resume.
        session: SessionId => SessionId,
        /// The session is the one that the client wanted to resume.
        resumed: bool => bool,
        /// Milliseconds that the session lives without a frame of the client.
        term_ms: u32 => u32,
        /// Milliseconds that its leases last; 0 if it is granted none.
        lease_ms: u32 => u32,
        /// The server's turn of owning the shard.
        epoch: u32 => u32,
        /// The id of the volume.
        volume: [u8; 16] => [u8; 16],
        /// The server refuses mutations.
        read_only: bool => bool,
        /// Most requests that may be under way.
        requests: u32 => u32,
        /// Most bulk bytes that may be under way, of writes and of the reads that were asked for.
        bulk: u32 => u32,
    }

    /// The server's answer to a hello: there is no session, and the connection ends.
    Refused {
        /// The reason.
        code: RefusalCode => RefusalCode,
        /// The oldest version of the wire that the server speaks.
        wire_min: u16 => u16,
        /// The newest version.
        wire_max: u16 => u16,
        /// Milliseconds after which a new try makes sense; 0 if none does.
        retry_ms: u32 => u32,
        /// More for people, at most [`limits::TEXT_BYTES`] bytes; a longer text is cut.
        text: Text => String,
    }

    /// The server's last message: it ends the connection.
    Closing {
        /// The reason.
        code: ClosingCode => ClosingCode,
        /// More for people, at most [`limits::TEXT_BYTES`] bytes; a longer text is cut.
        text: Text => String,
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $type:ident { $(
        $(#[doc = $why:literal])+ $name:ident = $number:literal, $says:literal;
    )+ })+) => { $(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[doc = $why])+ $name,)+
            /// The number of a newer server.
            Other(u16),
        }

        impl $type {
            /// Every code that this version has, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the code with this number.
            #[must_use]
            pub const fn from_number(number: u16) -> Self {
                match number { $($number => Self::$name,)+ _ => Self::Other(number) }
            }

            /// Returns the number.
            #[must_use]
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)+ Self::Other(number) => number }
            }

            /// Returns a message for people: lower case, without a full stop.
            #[must_use]
            pub const fn says(self) -> &'static str {
                match self {
                    $(Self::$name => $says,)+
                    Self::Other(_) => "a reason that only a newer pelago knows",
                }
            }
        }

        impl Field for $type {
            type Value = Self;
            const MOST: usize = u16::MOST;

            fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
                u16::put(&value.number(), out)
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                u16::take(from).map(Self::from_number)
            }
        }
    )+ };
}

codes! {
    /// The reason for which a server gives no session. Numbers are never reused.
    RefusalCode {
        /// The two ranges of versions have none in common.
        OtherVersion = 1, "client and server speak different versions of the protocol";
        /// The first bytes are no hello.
        NotPelago = 2, "the client does not speak the protocol of pelago";
        /// The volume does not know the client's key.
        UnknownKey = 3, "the server does not know this key";
        /// The session to resume has ended, or never was.
        UnknownSession = 4, "the server does not know this session any more";
        /// The session to resume belongs to another process or key.
        SessionInUse = 5, "the session belongs to another process";
        /// The limit of sessions is reached.
        TooManySessions = 6, "the server has as many sessions as it can have";
        /// The server stops.
        ShuttingDown = 7, "the server is stopping";
        /// The server has started and still waits for the sessions of its last run.
        Starting = 8, "the server has started and waits for its earlier clients";
        /// The server has no such role for a client.
        UnknownRole = 9, "the server does not know what the client is";
        /// The session cannot be recorded: the disk is full, or fails.
        NotRecorded = 10, "the server cannot record a session now";
        /// The limit of sessions of one key or user is reached.
        TooManyOfPeer = 11, "this machine or user has as many sessions as one may have";
        /// Newer connections without a session took the place of this one.
        TooManyStrangers = 12, "too many connections to the server have no session yet";
        /// The key has no right by the credentials that were presented.
        NoAccess = 13, "the server grants this key nothing by what it presented";
        /// The key is not that of a site of the volume, and was not invited as one.
        NotInvited = 14, "the server has not invited this site";
        /// The folder of the site that asks is a copy, or older than the server has seen of it.
        Older = 15, "the folder of this office is a copy, or an older one";
        /// The folder is of a volume whose mirror was promoted: that is the primary now.
        NotPrimary = 16, "another folder is the primary of this volume now";
        /// Another server of the shared store owns the volume. The first line of the text is its
        /// address, KEY@HOST:PORT; it is empty if the server does not know it.
        NotOwner = 17, "another server owns this volume now";
        /// The hello names another volume, shard or site.
        NotServed = 18, "the server does not serve this volume, shard or site";
        /// The office does not know what was taken back in the first one.
        NotCurrent = 19, "the office serves no guest before it has asked the first one";
        /// The server's own folder is a copy, or older than what the site that asks has seen of it.
        Outdated = 20, "the folder of the office there is a copy, or an older one";
    }

    /// The reason for which a server ends a connection. Numbers are never reused.
    ClosingCode {
        /// The server stops; the session can be resumed.
        ShuttingDown = 1, "the server is stopping";
        /// The client sent bytes that the protocol does not allow.
        Protocol = 2, "the client sent a message that the protocol does not allow";
        /// No frame came for longer than the session's term.
        Expired = 3, "the session was silent for too long";
        /// Another connection continues the session.
        Resumed = 4, "the session continues on another connection";
        /// The volume does not know the client's key any more.
        KeyRevoked = 5, "the server does not know this key any more";
        /// More is under way than the welcome allows.
        OverLimit = 6, "the client has more requests under way than it may have";
        /// The guest's credentials grant nothing any more.
        NoAccess = 7, "the credential grants nothing any more";
        /// Another server of the shared store owns the volume; the session can be resumed there.
        /// The text is as in a refusal.
        NotOwner = 8, "another server owns this volume now";
        /// The server has heard that its mirror was promoted, and serves no more.
        NotPrimary = 9, "another folder is the primary of this volume now";
    }
}
