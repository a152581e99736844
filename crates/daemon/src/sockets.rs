//! A machine that speaks over UDP sockets: all that is below it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::Context;

use segue_clock::{Machine, Time};
use segue_ip::{Datagram, Input, Output};
use segue_linux::clock::monotonic;
use segue_linux::udp::{Leave, TimestampedSocket};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tracing::debug;

use crate::engine::{Engine, Queue, ToLoop};
use crate::events::Trouble;

/// The protocol number of UDP.
const UDP: u8 = 17;
/// Datagrams of a socket that are taken in a turn.
const A_TURN: usize = 64;
/// The longest datagram.
const LONGEST: usize = 65_535;

/// A machine over its sockets. What it sends leaves from the socket of the port that it names.
pub struct Sockets<M> {
    /// The machine.
    pub machine: M,
    sockets: BTreeMap<u16, Shared>,
    /// Datagrams that could not be sent.
    unsent: u64,
    last_error: Option<anyhow::Error>,
}

type Shared = Rc<RefCell<TimestampedSocket>>;

/// Where datagrams wait: in the sockets.
pub struct Arrivals {
    /// Each with the runtime's view of it, which tells when it is readable.
    sockets: Vec<(u16, Shared, UdpSocket)>,
    buffer: Vec<u8>,
}

impl<M> Sockets<M> {
    /// Opens a socket of both families on each port.
    pub fn open(machine: M, ports: &[u16]) -> anyhow::Result<(Sockets<M>, Arrivals)> {
        let (mut sockets, mut arrivals) = (BTreeMap::new(), Vec::new());
        for port in ports {
            let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), *port);
            let mut socket = TimestampedSocket::bind(any, None)?;
            socket.receive_stamps_only();
            socket.receive_ttl()?;
            let readiness = std::net::UdpSocket::from(socket.as_fd().try_clone_to_owned()?);
            let readiness = UdpSocket::from_std(readiness)?;
            let socket = Rc::new(RefCell::new(socket));
            arrivals.push((*port, Rc::clone(&socket), readiness));
            sockets.insert(*port, socket);
        }
        let end = Sockets { machine, sockets, unsent: 0, last_error: None };
        Ok((end, Arrivals { sockets: arrivals, buffer: vec![0; LONGEST] }))
    }

    fn try_send(&self, datagram: &Datagram) -> anyhow::Result<()> {
        let Datagram { interface, from, to, hop_limit, .. } = *datagram;
        let socket = self.sockets.get(&from.1).filter(|_| datagram.protocol == UDP);
        let Some(socket) = socket else {
            anyhow::bail!(
                "there is no socket for protocol {} from port {}",
                datagram.protocol,
                from.1
            )
        };
        let from = Some(from.0).filter(|from| !from.is_unspecified());
        let how = Leave { from, interface, class: None, hop_limit: Some(hop_limit) };
        socket.borrow_mut().send(&datagram.bytes, SocketAddr::new(to.0, to.1), how)?;
        Ok(())
    }
}

impl<M, I, O, N, P> Engine for Sockets<M>
where
    M: Machine<Input = Input<I, P>, Output = Output<O, N, P>>,
{
    type Own = I;
    type Wish = O;
    type News = N;
    type Record = P;
    type Event = Datagram;
    type Queue = Arrivals;
    type Turn = ();

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline().map(|(at, _)| at)
    }

    fn handle(&mut self, input: Input<I, P>) {
        self.machine.handle(monotonic(), input);
    }

    fn on_event(&mut self, datagram: Datagram) {
        self.machine.handle(monotonic(), Input::Datagram(datagram));
    }

    fn at_deadline(&mut self, _: &mut Arrivals) {
        self.machine.tick(monotonic());
    }

    fn refresh(&mut self) {}

    fn send(&mut self, datagram: Datagram) {
        if let Err(error) = self.try_send(&datagram) {
            self.unsent += 1;
            let to = SocketAddr::new(datagram.to.0, datagram.to.1);
            self.last_error = Some(error.context(format!("cannot send to {to}")));
        }
    }

    fn poll(&mut self, (): &mut ()) -> Option<ToLoop<Self>> {
        self.machine.poll()
    }

    fn finish(&mut self, (): (), trouble: &mut Trouble) {
        if let Some(error) = self.last_error.take() {
            trouble.tell(monotonic(), &error);
        }
    }

    fn heartbeat(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn drops(&mut self) -> BTreeMap<String, u64> {
        let unsent = Some(self.unsent).filter(|n| *n > 0);
        unsent.map(|n| ("unsent".to_owned(), n)).into_iter().collect()
    }
}

impl Queue for Arrivals {
    type Event = Datagram;

    fn take(&mut self, context: &mut Context<'_>, mut into: impl FnMut(Datagram)) {
        let Arrivals { sockets, buffer } = self;
        for (port, socket, readiness) in sockets {
            let mut left = A_TURN;
            while left > 0 && readiness.poll_recv_ready(context).is_ready() {
                let take = || receive(&socket.borrow(), *port, buffer);
                match readiness.try_io(Interest::READABLE, take) {
                    Ok(datagram) => into(datagram),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => debug!("nothing received on port {port}: {error}"),
                }
                left -= 1;
            }
            if left == 0 {
                context.waker().wake_by_ref();
            }
        }
    }
}

fn receive(socket: &TimestampedSocket, port: u16, buffer: &mut [u8]) -> io::Result<Datagram> {
    let came = socket.recv(buffer)?.ok_or(ErrorKind::WouldBlock)?;
    let any: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    Ok(Datagram {
        interface: came.interface,
        from: (came.source.ip(), came.source.port()),
        to: (came.local.unwrap_or(any), port),
        protocol: UDP,
        hop_limit: came.ttl.unwrap_or(0),
        bytes: buffer.get(..came.len).unwrap_or_default().to_vec(),
    })
}
