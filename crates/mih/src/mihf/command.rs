//! Link commands: executed if this node owns the link, forwarded to the owner otherwise.

use segue_wire::mih::codes::{
    CommandList, DeviceStatesRequest, LinkActionResult, LinkActionType, LinkStatesRequest,
    OperationMode,
};
use segue_wire::mih::identity::LinkTupleId;
use segue_wire::mih::link::{
    DeviceState, LinkActionRequest, LinkActionResponse, LinkState, LinkStatus, LinkStatusRequest,
    Parameter, ParameterValue,
};

use super::state::{Asker, Purpose};
use super::*;
use crate::io::{Action, Command, CommandAnswer, MihfWish};

/// Maximum number of actions per command, and of action commands in progress.
const ACTIONS_MAX: usize = 64;
/// Maximum delay of an action, in milliseconds. A delayed action occupies one of the `ACTIONS_MAX` slots.
pub const AFTER_MAX_MS: u16 = 10_000;

/// Actions in progress for one command.
pub(super) struct Acting {
    asker: Asker,
    results: Vec<(LinkId, Option<LinkActionResult>)>,
}

impl Command {
    fn message(&self) -> MessageId {
        match self {
            Command::GetParameters { .. } => MessageId::LINK_GET_PARAMETERS,
            Command::ConfigureThresholds { .. } => MessageId::LINK_CONFIGURE_THRESHOLDS,
            Command::Actions(_) => MessageId::LINK_ACTIONS,
        }
    }

    fn links(&self) -> Vec<&LinkId> {
        match self {
            Command::GetParameters { links, .. } => links.iter().collect(),
            Command::ConfigureThresholds { link, .. } => Vec::from([link]),
            Command::Actions(actions) => actions.iter().map(|action| &action.link).collect(),
        }
    }

    fn tlvs(&self) -> Vec<Tlv> {
        match self {
            Command::GetParameters { device, links, status } => Vec::from([
                Tlv::DeviceStatesRequest(*device),
                Tlv::LinkIdentifierList(links.clone()),
                Tlv::GetStatusRequestSet(status.clone()),
            ]),
            Command::ConfigureThresholds { link, parameters } => Vec::from([
                Tlv::LinkIdentifier(LinkTupleId { link: link.clone(), poa: None }),
                Tlv::ConfigureRequestList(parameters.clone()),
            ]),
            Command::Actions(actions) => {
                let request = |action: &Action| LinkActionRequest {
                    link: action.link.clone(),
                    address: action.station.clone(),
                    action: action.action,
                    attributes: action.attributes,
                    execution_time_ms: action.after_ms,
                };
                Vec::from([Tlv::LinkActionsList(actions.iter().map(request).collect())])
            }
        }
    }

    fn read(message: MessageId, tlvs: &[Tlv]) -> Option<Command> {
        match (message, tlvs) {
            (
                MessageId::LINK_GET_PARAMETERS,
                [
                    Tlv::DeviceStatesRequest(device),
                    Tlv::LinkIdentifierList(links),
                    Tlv::GetStatusRequestSet(status),
                    ..,
                ],
            ) => {
                let (device, links, status) = (*device, links.clone(), status.clone());
                Some(Command::GetParameters { device, links, status })
            }
            (
                MessageId::LINK_CONFIGURE_THRESHOLDS,
                [Tlv::LinkIdentifier(tuple), Tlv::ConfigureRequestList(parameters), ..],
            ) => {
                let (link, parameters) = (tuple.link.clone(), parameters.clone());
                Some(Command::ConfigureThresholds { link, parameters })
            }
            (MessageId::LINK_ACTIONS, [Tlv::LinkActionsList(all), ..]) => {
                let action = |of: &LinkActionRequest| Action {
                    link: of.link.clone(),
                    station: of.address.clone(),
                    action: of.action,
                    attributes: of.attributes,
                    after_ms: of.execution_time_ms,
                };
                Some(Command::Actions(all.iter().map(action).collect()))
            }
            _ => None,
        }
    }
}

impl CommandAnswer {
    fn tlvs(self, link: Option<LinkId>) -> Vec<Tlv> {
        let success = Tlv::Status(Status::SUCCESS);
        match self {
            CommandAnswer::Parameters { device, links } => Vec::from([
                success,
                Tlv::DeviceStatesResponseList(device),
                Tlv::GetStatusResponseList(links),
            ]),
            CommandAnswer::Thresholds(all) => {
                let tuple = link.map(|link| Tlv::LinkIdentifier(LinkTupleId { link, poa: None }));
                let rest = [Tlv::ConfigureResponseList(all)];
                [success].into_iter().chain(tuple).chain(rest).collect()
            }
            CommandAnswer::Actions(all) => Vec::from([success, Tlv::LinkActionsResultList(all)]),
            CommandAnswer::Failed(status) => Vec::from([Tlv::Status(status)]),
        }
    }

    fn read(status: Status, tlvs: &[Tlv]) -> CommandAnswer {
        if status != Status::SUCCESS {
            return CommandAnswer::Failed(status);
        }
        let device = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::DeviceStatesResponseList(all) => Some(all.clone()),
            _ => None,
        });
        let found = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::GetStatusResponseList(links) => {
                let (device, links) = (device.clone().unwrap_or_default(), links.clone());
                Some(CommandAnswer::Parameters { device, links })
            }
            Tlv::ConfigureResponseList(all) => Some(CommandAnswer::Thresholds(all.clone())),
            Tlv::LinkActionsResultList(all) => Some(CommandAnswer::Actions(all.clone())),
            _ => None,
        });
        found.unwrap_or(CommandAnswer::Failed(Status::UNSPECIFIED_FAILURE))
    }
}

impl Mihf {
    /// A peer sends a command.
    pub(super) fn commanded(
        &mut self,
        now: Time,
        request: &Request,
        tlvs: &[Tlv],
    ) -> Result<Served, Refusal> {
        let Some(command) = Command::read(request.message, tlvs) else {
            // Handover and information service requests are decoded, but not supported.
            self.refuse(Refusal::NotServed);
            return Ok(Served::Now(Vec::from([Tlv::Status(Status::REJECTED)])));
        };
        let request = Request { acknowledged: true, ..request.clone() };
        self.command(now, Asker::Peer(request), command);
        Ok(Served::Later)
    }

    /// The operator sends a command.
    pub(super) fn ordered(&mut self, now: Time, number: u64, command: Command) {
        self.command(now, Asker::Operator(number), command);
    }

    fn command(&mut self, now: Time, asker: Asker, command: Command) {
        let owners = command.links().into_iter().map(|id| {
            let link = self.links.get(id)?;
            link.owner.clone()
        });
        let mut owners: Vec<Option<Owner>> = owners.collect();
        owners.dedup();
        let party = match owners.as_slice() {
            [] | [Some(Owner::Own)] => None,
            [Some(owner)] => owner.party(),
            // Unknown link, or links of several owners.
            _ => {
                self.refuse(Refusal::Link);
                self.conclude(now, &asker, CommandAnswer::Failed(Status::REJECTED));
                return;
            }
        };
        let Some(party) = party else {
            self.perform(now, asker, command);
            return;
        };
        let (message, tlvs) = (command.message(), command.tlvs());
        let purpose = Purpose::Command(asker.clone());
        let asked = self.way(&party).is_some_and(|way| self.ask(now, way, message, tlvs, purpose));
        if !asked {
            self.unanswered(now, &asker);
        }
    }

    /// Fails a command that will not be answered.
    pub(super) fn unanswered(&mut self, now: Time, asker: &Asker) {
        self.conclude(now, asker, CommandAnswer::Failed(Status::NETWORK_ERROR));
    }

    /// Executes a command on links of this node.
    fn perform(&mut self, now: Time, asker: Asker, command: Command) {
        let answer = match command {
            Command::GetParameters { device, links, status } => {
                let links = links.iter().filter_map(|id| self.status_of(id, &status)).collect();
                let wants = device.contains(DeviceStatesRequest::DEVICE_INFO);
                let info = wants.then(|| DeviceState::DeviceInfo("Segue".into()));
                CommandAnswer::Parameters { device: info.into_iter().collect(), links }
            }
            Command::ConfigureThresholds { link, parameters } => {
                CommandAnswer::Thresholds(self.configure(now, &link, &parameters))
            }
            Command::Actions(actions) => {
                self.act(now, asker, actions);
                return;
            }
        };
        self.conclude(now, &asker, answer);
    }

    fn act(&mut self, now: Time, asker: Asker, actions: Vec<Action>) {
        if actions.is_empty() || actions.len() > ACTIONS_MAX || self.acting.len() >= ACTIONS_MAX {
            self.conclude(now, &asker, CommandAnswer::Failed(Status::REJECTED));
            return;
        }
        self.number += 1;
        let group = self.number * ACTIONS_MAX as u64;
        let mut results = Vec::new();
        for (place, action) in (0..).zip(actions) {
            let can = self.links.get(&action.link).is_some_and(|link| {
                link.commands.contains(CommandList::LINK_ACTIONS)
                    && action.action != LinkActionType::NONE
                    && action.after_ms <= AFTER_MAX_MS
            });
            let result = (!can).then_some(LinkActionResult::INCAPABLE);
            results.push((action.link.clone(), result));
            if can {
                let number = group + place;
                self.out.push_back(Output::Own(MihfWish::Act { number, action }));
            }
        }
        self.acting.insert(group, Acting { asker, results });
        self.acted_all(now, group);
    }

    /// Records the result of an action.
    pub(super) fn acted(&mut self, now: Time, number: u64, result: LinkActionResult) {
        let place = number % ACTIONS_MAX as u64;
        let group = number - place;
        let acting = self.acting.get_mut(&group);
        if let Some((_, done)) = acting.and_then(|acting| acting.results.get_mut(place as usize)) {
            *done = Some(result);
            self.acted_all(now, group);
        }
    }

    /// Answers once all actions have a result.
    fn acted_all(&mut self, now: Time, group: u64) {
        let Some(acting) = self.acting.get(&group) else { return };
        let response = |(link, result): &(LinkId, Option<LinkActionResult>)| {
            let (link, scan) = (link.clone(), None);
            result.map(|result| LinkActionResponse { link, result, scan })
        };
        let all: Option<Vec<LinkActionResponse>> = acting.results.iter().map(response).collect();
        if let Some(all) = all
            && let Some(acting) = self.acting.remove(&group)
        {
            self.conclude(now, &acting.asker, CommandAnswer::Actions(all));
        }
    }

    /// The status of a link. Parameters only if exactly one station is attached, since the answer cannot name a
    /// station.
    fn status_of(&self, id: &LinkId, wanted: &LinkStatusRequest) -> Option<LinkStatus> {
        let link = self.links.get(id)?;
        let mut stations = link.stations.values();
        let only = stations.next().filter(|_| stations.next().is_none());
        let parameters = wanted.parameters.iter().filter_map(|parameter| {
            let value = ParameterValue::Number(only?.value(parameter)?);
            Some(Parameter { parameter: parameter.clone(), value })
        });
        let mode = wanted.states.contains(LinkStatesRequest::OPERATION_MODE);
        let states = mode.then_some(LinkState::OperationMode(OperationMode::NORMAL));
        Some(LinkStatus {
            link: id.clone(),
            states: states.into_iter().collect(),
            parameters: parameters.collect(),
            descriptors: Vec::new(),
        })
    }

    /// The owner of a link answered a command.
    pub(super) fn command_answered(
        &mut self,
        now: Time,
        asker: &Asker,
        status: Status,
        tlvs: &[Tlv],
    ) {
        self.conclude(now, asker, CommandAnswer::read(status, tlvs));
    }

    /// Sends the answer to the requester.
    pub(super) fn conclude(&mut self, now: Time, asker: &Asker, answer: CommandAnswer) {
        match asker {
            Asker::Operator(number) => {
                let number = *number;
                self.out.push_back(Output::Own(MihfWish::Answered { number, answer }));
            }
            Asker::Peer(request) => {
                let link = match &answer {
                    CommandAnswer::Thresholds(_) => request.link.clone(),
                    _ => None,
                };
                self.answer(now, request, answer.tlvs(link));
            }
        }
    }
}
