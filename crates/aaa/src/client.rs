//! The client: authorizations, sessions and their timers.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use segue_clock::planted::fault;
use segue_clock::{DayClock, Deadline, Machine, Time, Timers, earlier};
use segue_ip::{Input, Output};
use segue_wire::radius::Code;

use crate::config::AaaConfig;
use crate::exchanges::{Answer, Exchanges, Outcome, Question};
use crate::grant::Grant;
use crate::io::{AaaInput, AaaOutput, AaaWish, Cause, Subject, Verdict, Volume};
use crate::news::{AaaReport, Unfit};
use crate::request::{self, Served, Status};
use crate::servers::{ServerStatus, Service};
use crate::sessions::Session;

/// Maximum number of hosts in hold-off; beyond it, the oldest leave early.
const HELD_MAX: usize = 1 << 13;
/// Maximum number of ended sessions whose stop record is unacknowledged; beyond it, the oldest is dropped.
const ENDING_MAX: usize = 1 << 12;

/// The purpose of a request.
enum Purpose<K> {
    /// Authorization of a host.
    Ask(K),
    /// An accounting record of the session with this number.
    Account(u64),
    /// Accounting-On.
    On,
}

/// Timers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The Session-Timeout has passed.
    Over,
    /// Ask again: no server answered about a session in service.
    Again,
    /// An interim update is due.
    Interim,
}

impl Due {
    const fn why(self) -> &'static str {
        match self {
            Due::Over => "a session is over",
            Due::Again => "to ask about a session again",
            Due::Interim => "to account for a session",
        }
    }
}

/// The client's machine. `K` is the driver's key of a host's interface.
pub struct Aaa<K> {
    config: AaaConfig,
    exchanges: Exchanges<Purpose<K>>,
    /// Pending Access-Requests: request number and host.
    asks: BTreeMap<K, (u64, Subject)>,
    /// Hosts in hold-off: until when, and whether they were refused.
    held: BTreeMap<K, (Time, bool)>,
    held_order: VecDeque<(Time, K)>,
    /// By session number, including ended sessions with unsent records.
    sessions: BTreeMap<u64, Session<K>>,
    current: BTreeMap<K, u64>,
    timers: Timers<(u64, Due)>,
    number: u64,
    /// Questions answered without asking a server: during hold-off, and because too many requests were pending.
    held_back: u64,
    too_many: u64,
    /// Stop records that no server acknowledged.
    untold: u64,
    greeted: bool,
    /// No server has acknowledged the Accounting-On yet. Records wait until one has, or all are silent: the server ends
    /// the sessions that it knows when an Accounting-On arrives, even a late one.
    greeting: bool,
    out: VecDeque<AaaOutput<K>>,
}

impl<K: Ord + Clone> Aaa<K> {
    /// A client with no requests and no sessions.
    #[must_use]
    pub fn new(config: AaaConfig) -> Aaa<K> {
        Aaa {
            exchanges: Exchanges::new(&config),
            asks: BTreeMap::new(),
            held: BTreeMap::new(),
            held_order: VecDeque::new(),
            sessions: BTreeMap::new(),
            current: BTreeMap::new(),
            timers: Timers::new(),
            number: 0,
            held_back: 0,
            too_many: 0,
            untold: 0,
            greeted: false,
            greeting: false,
            out: VecDeque::new(),
            config,
        }
    }

    /// State and counters of each server.
    pub fn servers(&self) -> impl Iterator<Item = &ServerStatus> {
        self.exchanges.servers()
    }

    /// Datagrams from unknown senders, counted by reason.
    #[must_use]
    pub fn strangers(&self) -> &BTreeMap<Unfit, u64> {
        self.exchanges.strangers()
    }

    /// Number of hosts with a session.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.current.len()
    }

    /// Number of pending requests.
    #[must_use]
    pub fn open(&self) -> usize {
        self.exchanges.count()
    }

    /// Counters of what no server was asked or told: questions during hold-off, questions beyond a limit, and
    /// stop records that were never acknowledged.
    #[must_use]
    pub fn passed_over(&self) -> [u64; 3] {
        [self.held_back, self.too_many, self.untold]
    }

    fn answer(&mut self, key: K, verdict: Verdict) {
        self.out.push_back(Output::Own(AaaWish::Answered { key, verdict }));
    }

    fn ask(&mut self, now: Time, key: K, subject: Subject) {
        if self.asks.contains_key(&key) {
            return;
        }
        if let Some((until, refused)) = self.held.get(&key)
            && *until > now
            && !self.current.contains_key(&key)
        {
            let verdict = if *refused { Verdict::Refused } else { Verdict::Unanswered };
            self.held_back += 1;
            self.answer(key, verdict);
            return;
        }
        let session = self.current.get(&key).and_then(|number| self.sessions.get(number));
        let is_full = session.is_none() && self.current.len() >= self.config.capacity;
        let state = session.and_then(|session| session.grant.as_ref()?.state.clone());
        let question = Question {
            service: Service::Authentication,
            attributes: request::access(&self.config, &subject, state.as_deref()),
            password: request::password(&self.config, &subject),
            tag: Purpose::Ask(key.clone()),
        };
        let number = if is_full { None } else { self.exchanges.start(now, question) };
        match number {
            Some(number) => {
                self.asks.insert(key, (number, subject));
            }
            None => {
                self.too_many += 1;
                self.unanswered(now, key);
            }
        }
    }

    /// Starts the hold-off of a host.
    fn hold(&mut self, now: Time, key: &K, refused: bool) {
        while let Some((until, _)) = self.held_order.front()
            && (*until <= now || self.held_order.len() >= HELD_MAX)
        {
            if let Some((until, key)) = self.held_order.pop_front()
                && self.held.get(&key).is_some_and(|(held, _)| *held == until)
            {
                self.held.remove(&key);
            }
        }
        let until = now + self.config.hold_off;
        self.held.insert(key.clone(), (until, refused));
        self.held_order.push_back((until, key.clone()));
    }

    fn asked(&mut self, now: Time, key: K, answer: Option<Answer>) {
        let Some((_, subject)) = self.asks.remove(&key) else { return };
        let Some(Answer { packet, peer }) = answer else {
            self.unanswered(now, key);
            return;
        };
        // The client cannot answer a challenge, so it counts as a refusal (RFC 2865, 4.4).
        let accepted = packet.code == Code::ACCESS_ACCEPT;
        let grant = Grant::of(&packet, self.config.profile, self.config.side);
        let grant = grant.filter(|_| accepted);
        match grant {
            Some(grant) => self.granted(now, key, subject, grant),
            None => {
                let from = self.exchanges.peer(peer);
                let server = from.status.address;
                let user = request::user_name(&self.config, &subject);
                let user = String::from_utf8_lossy(&user).into_owned();
                let report = if accepted {
                    from.refuse(Unfit::NoIdentity);
                    AaaReport::Nameless { user, server }
                } else {
                    from.status.rejects += 1;
                    AaaReport::Refused { user, server }
                };
                self.out.push_back(Output::Report(report));
                if fault(52) && self.current.contains_key(&key) {
                    return;
                }
                self.hold(now, &key, true);
                self.answer(key, Verdict::Refused);
            }
        }
    }

    /// No server answered. A host in service stays in service and is asked about again after the hold-off.
    fn unanswered(&mut self, now: Time, key: K) {
        if let Some(number) = self.current.get(&key)
            && self.sessions.get(number).is_some_and(|session| session.began.is_some())
            && !fault(55)
        {
            self.timers.set((*number, Due::Again), now + self.config.hold_off);
            return;
        }
        self.hold(now, &key, false);
        self.answer(key, Verdict::Unanswered);
    }

    fn granted(&mut self, now: Time, key: K, subject: Subject, grant: Grant) {
        self.held.remove(&key);
        let number = match self.current.get(&key) {
            Some(number) => *number,
            None => self.new_session(key.clone(), subject),
        };
        self.timers.cancel(&(number, Due::Again));
        match grant.session {
            Some(session) => self.timers.set((number, Due::Over), now + session),
            None => self.timers.cancel(&(number, Due::Over)),
        }
        if let Some(session) = self.sessions.get_mut(&number) {
            session.grant = Some(grant.clone());
        }
        self.answer(key, Verdict::Granted(grant));
        self.account(now, number);
    }

    fn new_session(&mut self, key: K, subject: Subject) -> u64 {
        self.number += 1;
        let name = format!("{:016x}", self.exchanges.random());
        self.sessions.insert(self.number, Session::new(key.clone(), subject, name));
        self.current.insert(key, self.number);
        self.number
    }

    fn began(&mut self, now: Time, key: K, subject: Subject) {
        let number = match self.current.get(&key) {
            Some(number) => *number,
            None if self.current.len() >= self.config.capacity => return,
            None => self.new_session(key.clone(), subject.clone()),
        };
        let day = self.config.clock.at(now);
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.subject = subject.clone();
        if session.began.is_none() {
            session.began = Some((now, day));
            session.counted = Some(subject.prefixes.clone());
        }
        let is_new = session.volume.is_none();
        let asks = session.grant.is_none();
        if is_new {
            self.count(number);
        }
        if asks && self.timers.get(&(number, Due::Again)).is_none() {
            self.ask(now, key, subject);
        }
        self.account(now, number);
    }

    fn ended(&mut self, now: Time, key: &K, cause: Cause) {
        if let Some((number, _)) = self.asks.remove(key) {
            self.exchanges.cancel(now, number);
        }
        let Some(number) = self.current.remove(key) else { return };
        if fault(54) {
            self.sessions.remove(&number);
        }
        for due in [Due::Over, Due::Again, Due::Interim] {
            self.timers.cancel(&(number, due));
        }
        let day = self.config.clock.at(now);
        if let Some(session) = self.sessions.get_mut(&number) {
            session.ended = Some((now, day, cause));
        }
        self.count(number);
        self.account(now, number);
        if self.sessions.len() - self.current.len() > ENDING_MAX {
            let ended = |(_, session): &(&u64, &Session<K>)| session.ended.is_some();
            let oldest = self.sessions.iter().find(ended).map(|(number, _)| *number);
            oldest.map(|number| self.sessions.remove(&number));
            self.untold += 1;
        }
    }

    /// Requests the traffic of a session, if traffic is counted.
    fn count(&mut self, number: u64) {
        let Some(session) = self.sessions.get_mut(&number).filter(|_| self.config.counts) else {
            return;
        };
        if let Some(prefixes) = session.counted.clone() {
            session.asking = true;
            let last = session.ended.is_some();
            let wish = AaaWish::Count { session: number, prefixes, last };
            self.out.push_back(Output::Own(wish));
        }
    }

    /// Records the traffic of a session.
    fn counted(&mut self, now: Time, number: u64, volume: Volume) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.volume = Some(volume);
        session.asking = false;
        self.account(now, number);
    }

    /// Sends the next accounting record of a session, or removes the session if none is left.
    fn account(&mut self, now: Time, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if self.config.accounting.is_empty() {
            if session.ended.is_some() {
                self.sessions.remove(&number);
            }
            return;
        }
        if session.is_done() {
            self.sessions.remove(&number);
            return;
        }
        if self.greeting {
            return;
        }
        let Some(status) = session.next() else { return };
        let (Some((began, day)), Some(grant)) = (session.began, &session.grant) else { return };
        let (until, at, cause) = match (status, session.ended) {
            (Status::Start, _) => (began, day, None),
            (Status::Stop, Some((until, day, cause))) => (until, day, Some(cause)),
            _ => (now, self.config.clock.at(now), None),
        };
        let served = Served {
            subject: &session.subject,
            grant,
            session: &session.name,
            lasted: until.since(began),
            volume: session.volume,
            at,
        };
        let question = Question {
            service: Service::Accounting,
            attributes: request::accounting(&self.config, &served, status, cause),
            password: None,
            tag: Purpose::Account(number),
        };
        session.interim_due = false;
        session.telling = Some(status);
        let every = grant.interim.or(self.config.interim);
        if let Some(every) = every.filter(|_| session.ended.is_none()) {
            self.timers.set((number, Due::Interim), now + every);
        }
        if self.exchanges.start(now, question).is_none() {
            self.accounted(now, number, false);
        }
    }

    fn accounted(&mut self, now: Time, number: u64, taken: bool) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if !taken && session.telling == Some(Status::Stop) {
            self.untold += 1;
        }
        session.told();
        self.account(now, number);
    }

    fn due(&mut self, now: Time, number: u64, due: Due) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        match due {
            Due::Interim => {
                session.interim_due = true;
                self.count(number);
                self.account(now, number);
            }
            Due::Over if !session.grant.as_ref().is_some_and(|grant| grant.again) => {
                let key = session.key.clone();
                self.answer(key, Verdict::Refused);
            }
            Due::Over | Due::Again if fault(51) => {}
            Due::Over | Due::Again => {
                let (key, subject) = (session.key.clone(), session.subject.clone());
                self.ask(now, key, subject);
            }
        }
    }

    /// Processes completed requests until none is left.
    fn follow(&mut self, now: Time) {
        while let Some(Outcome { tag, answer }) = self.exchanges.done.pop_front() {
            match tag {
                Purpose::Ask(key) => self.asked(now, key, answer),
                Purpose::Account(number) => self.accounted(now, number, answer.is_some()),
                Purpose::On => {
                    self.greeting = false;
                    let waiting: Vec<u64> = self.sessions.keys().copied().collect();
                    waiting.into_iter().for_each(|number| self.account(now, number));
                }
            }
        }
        self.out
            .extend(self.exchanges.to_send.drain(..).map(|datagram| Output::Send(datagram, None)));
        self.out.extend(self.exchanges.news.drain(..).map(Output::Report));
    }

    /// Sends Accounting-On before anything else: sessions reported before the restart have ended.
    fn greet(&mut self, now: Time) {
        let is_silent = self.config.accounting.is_empty() || fault(56);
        if core::mem::replace(&mut self.greeted, true) || is_silent {
            return;
        }
        let name = format!("{:016x}", self.exchanges.random());
        let at = self.config.clock.at(now);
        let attributes = request::accounting_on(&self.config, &name, at);
        let (service, password, tag) = (Service::Accounting, None, Purpose::On);
        let question = Question { service, attributes, password, tag };
        self.greeting = self.exchanges.start(now, question).is_some() && !fault(53);
    }
}

impl<K: Ord + Clone> Machine for Aaa<K> {
    type Input = Input<AaaInput<K>, ()>;
    type Output = AaaOutput<K>;

    fn handle(&mut self, now: Time, input: Self::Input) {
        self.greet(now);
        self.tick(now);
        match input {
            Input::Datagram(came) => self.exchanges.take(now, &came),
            Input::Own(AaaInput::TimeOfDay(day)) => self.config.clock = DayClock::new(now, day),
            Input::Own(AaaInput::Ask { key, subject }) => self.ask(now, key, subject),
            Input::Own(AaaInput::Began { key, subject }) => self.began(now, key, subject),
            Input::Own(AaaInput::Ended { key, cause }) => self.ended(now, &key, cause),
            Input::Own(AaaInput::Counted { session, volume }) => {
                self.counted(now, session, volume);
            }
            Input::Interfaces(_) | Input::Link(_) | Input::Record(()) => {}
        }
        self.follow(now);
    }

    fn tick(&mut self, now: Time) {
        self.exchanges.tick(now);
        self.follow(now);
        while let Some((number, due)) = self.timers.pop_due(now) {
            self.due(now, number, due);
        }
        self.follow(now);
    }

    fn poll(&mut self) -> Option<AaaOutput<K>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Deadline {
        let exchange = self.exchanges.deadline().map(|at| (at, "a server has not answered"));
        let session = self.timers.next().map(|(at, (_, due))| (at, due.why()));
        earlier(exchange, session)
    }
}
