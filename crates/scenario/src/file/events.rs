//! `[[event]]`: events at predefined times.

use segue_clock::{Span, Time};
use segue_sim::AgentId;
use segue_sim::net::Change;
use segue_sim::tunnel::{AnchorAgent, AnchorOrder, HostAgent, HostOrder};
use segue_tunnel::HostInput;

use super::network::Builder;
use super::tables::{Direction, Event, Name};
use super::{Mistake, air, hint};

/// Schedules an event.
pub fn add(builder: &mut Builder<'_>, event: &Event) -> Result<(), Mistake> {
    let at = builder.within(&event.at)?;
    let Event { cut, mend, attach, detach, rebind, restart, handover, .. } = event;
    let kinds = [cut, mend, attach, detach, rebind, restart, handover];
    if kinds.iter().filter(|kind| kind.is_some()).count() != 1 {
        let message = "an event is one of cut, mend, attach, detach, rebind, restart, handover";
        return Err(Mistake::of(&event.at, message));
    }
    check_keys(builder, event)?;
    if let Some(name) = cut.as_ref().or(mend.as_ref()) {
        return add_cut(builder, event, at, name, cut.is_some());
    }
    if let Some(name) = attach.as_ref().or(detach.as_ref()) {
        let radio = air::radio(builder, name)?;
        let Some(cell) = &event.cell else {
            return Err(Mistake::of(name, "which cell?"));
        };
        let cell = air::cell(builder, cell)?;
        let change = if attach.is_some() { Change::Attach } else { Change::Detach };
        builder.network.schedule(at, change(radio, cell));
        return Ok(());
    }
    if let Some(name) = rebind {
        let node = builder.node(name)?;
        if builder.network.node(node).nat().is_none() {
            return Err(Mistake::of(name, format!("{} has no NAT", name.get_ref())));
        }
        if let Some(address) = &event.address {
            builder.own(node, address)?;
        }
        let address = event.address.as_ref().map(|address| address.get_ref().0);
        builder.network.schedule(at, Change::RebindNat(node, address));
        return Ok(());
    }
    match (restart, handover) {
        (Some(name), _) => add_restart(builder, event, at, name),
        (None, Some(name)) => add_handover(builder, event, at, name),
        (None, None) => Ok(()),
    }
}

/// Refuses keys that do not apply to this kind of event; they would be ignored silently.
fn check_keys(builder: &Builder<'_>, event: &Event) -> Result<(), Mistake> {
    let Event { cut, mend, attach, detach, rebind, restart, handover, .. } = event;
    let of_anchor = restart.as_ref().filter(|name| builder.anchors.contains_key(name.get_ref()));
    for (key, written, fits, kinds) in [
        ("cell", event.cell.is_some(), attach.is_some() || detach.is_some(), "attach and detach"),
        ("address", event.address.is_some(), rebind.is_some(), "rebind"),
        ("to", event.to.is_some(), handover.is_some(), "handover"),
        ("way", event.way.is_some(), cut.is_some() || mend.is_some(), "cut and mend"),
        (
            "for",
            event.lasting.is_some(),
            cut.is_some() || of_anchor.is_some(),
            "cut, and the restart of an anchor",
        ),
    ] {
        if written && !fits {
            return Err(Mistake::beside(&event.at, key, format!("this key is for {kinds}")));
        }
    }
    Ok(())
}

fn add_cut(
    builder: &mut Builder<'_>,
    event: &Event,
    at: Time,
    name: &Name,
    cut: bool,
) -> Result<(), Mistake> {
    let Some((_, both)) = builder.links.iter().find(|(known, _)| known == name.get_ref()) else {
        let known: Vec<&str> = builder.links.iter().map(|(name, _)| name.as_str()).collect();
        let hint = hint(name.get_ref(), &known);
        return Err(Mistake::of(name, format!("there is no link {}{hint}", name.get_ref())));
    };
    let channels = match event.way.unwrap_or_default() {
        Direction::Up => &both[..1],
        Direction::Down => &both[1..],
        Direction::Both => &both[..],
    };
    for channel in channels {
        builder.network.schedule(at, Change::Cut(*channel, cut));
        if let Some(lasting) = event.lasting.filter(|_| cut) {
            builder.network.schedule(at + lasting.0, Change::Cut(*channel, false));
        }
    }
    Ok(())
}

fn add_restart(
    builder: &mut Builder<'_>,
    event: &Event,
    at: Time,
    name: &Name,
) -> Result<(), Mistake> {
    if let Some(anchor) = builder.anchors.get(name.get_ref()).copied() {
        let down = event.lasting.map_or(Span::ZERO, |d| d.0);
        let agent = builder.network.agent_mut::<AnchorAgent>(anchor);
        agent.expect("it is an anchor").order(at, AnchorOrder::Restart(down));
        return Ok(());
    }
    let host = host(builder, name)?;
    let agent = builder.network.agent_mut::<HostAgent>(host);
    agent.expect("it is a host").order(at, HostOrder::Restart(Span::ZERO));
    Ok(())
}

fn add_handover(
    builder: &mut Builder<'_>,
    event: &Event,
    at: Time,
    name: &Name,
) -> Result<(), Mistake> {
    let host = host(builder, name)?;
    if let (Some(to), Some(node)) = (&event.to, builder.host_node(name.get_ref())) {
        let node = builder.network.node(node);
        let known: Vec<&str> = node.interfaces().map(|i| i.name.as_str()).collect();
        if !known.contains(&to.get_ref().as_str()) {
            let hint = hint(to.get_ref(), &known);
            let message = format!("{} has no interface {}{hint}", node.name, to.get_ref());
            return Err(Mistake::of(to, message));
        }
    }
    let to = event.to.as_ref().map(|to| to.get_ref().clone());
    let input = HostInput::Handover { flow: None, class: None, to };
    let agent = builder.network.agent_mut::<HostAgent>(host);
    agent.expect("it is a host").order(at, HostOrder::Own(Box::new(input)));
    Ok(())
}

fn host(builder: &Builder<'_>, name: &Name) -> Result<AgentId, Mistake> {
    builder.hosts.get(name.get_ref()).copied().ok_or_else(|| {
        if builder.anchors.contains_key(name.get_ref()) {
            return Mistake::of(name, format!("{} is an anchor", name.get_ref()));
        }
        let known = builder.hosts.keys().chain(builder.anchors.keys());
        let known: Vec<&str> = known.map(String::as_str).collect();
        let hint = hint(name.get_ref(), &known);
        Mistake::of(name, format!("there is no host {}{hint}", name.get_ref()))
    })
}
