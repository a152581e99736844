//! The status page of the IEEE 802.21 daemons.

use segue_daemon::control::Status;
use segue_daemon::mih::{LinkStatus, MihStatus, StationStatus, Words};
use segue_text::terminal::layout::Column;
use segue_text::terminal::{Colours, Tone};

use super::super::which::Paper;
use super::page::{ALL, ROWS, counted, sentences, table};

const LINKS: [Column; 4] = [
    Column::left("link", 17),
    Column::left("kind", 12).apart(),
    Column::left("told by", 16).apart(),
    Column::right("stations", 8).apart(),
];

const STATIONS: [Column; 4] = [
    Column::left("station", 17),
    Column::left("link", 17).apart(),
    Column::right("signal", 8).apart(),
    Column::left("state", 0).apart(),
];

/// The lines of the page without its events.
pub(crate) fn lines(Status { head, body, .. }: &Status<Words>, paper: Paper) -> Vec<String> {
    let MihStatus { links, registered, functions, refused, stranger, .. } = body;
    let colours = paper.colours;
    let mut said = vec![format!("{} {}, up {:.0} s", head.role, body.mihf_id, head.uptime_s)];
    for function in functions {
        let name = function.mihf_id.as_deref().unwrap_or("not heard of yet");
        let how = match function.registered {
            true => "registered there".to_owned(),
            false => colours.paint(Tone::Bad, "not registered there"),
        };
        said.push(format!("function   {} {name} ({how})", function.address));
    }
    for peer in registered {
        said.push(format!("registered {} at {} ({})", peer.mihf_id, peer.address, peer.transport));
    }
    if links.is_empty() {
        said.push("links      none".into());
    }
    let mut all = sentences(&said, paper);
    let rows = links.iter().map(|link| of_link(link, colours)).take(ROWS);
    all.extend(table(&LINKS, rows, (links.len(), ALL), paper));
    let stations = links.iter().flat_map(|link| {
        link.stations.iter().map(move |station| of_station(link, station, colours))
    });
    let count = links.iter().map(|link| link.stations.len()).sum();
    all.extend(table(&STATIONS, stations.take(ROWS), (count, ALL), paper));
    let mut said = Vec::new();
    for link in links {
        for (who, events) in &link.subscribed {
            said.push(format!("subscribed {who} to {}: {}", link.link, events.join(", ")));
        }
    }
    said.extend(counted(refused));
    if let Some(stranger) = stranger {
        said.push(format!("stranger   {stranger} (add it to peers if it is none)"));
    }
    said.extend(counted(&head.drops));
    all.extend(sentences(&said, paper));
    all
}

fn of_link(link: &LinkStatus, colours: Colours) -> Vec<String> {
    let owner = match &*link.owner {
        "" => colours.paint(Tone::Bad, "nobody any more"),
        "own" => "this daemon".to_owned(),
        owner => owner.to_owned(),
    };
    vec![link.link.clone(), link.kind.clone(), owner, link.stations.len().to_string()]
}

fn of_station(link: &LinkStatus, station: &StationStatus, colours: Colours) -> Vec<String> {
    let signal = station.signal_dbm.map_or_else(|| "-".to_owned(), |dbm| format!("{dbm} dBm"));
    let state = match station.going_down {
        true => colours.paint(Tone::Doubtful, "about to leave"),
        false => colours.paint(Tone::Good, "attached"),
    };
    vec![station.station.clone(), link.link.clone(), signal, state]
}

#[cfg(test)]
mod tests {
    use segue_daemon::control::Head;
    use segue_daemon::mih::FunctionStatus;

    use super::*;

    #[test]
    fn a_page_has_links_stations_and_who_hears_of_them() {
        let station = StationStatus {
            station: "02:5e:67:01:00:00".into(),
            signal_dbm: Some(-71),
            going_down: true,
        };
        let link = LinkStatus {
            link: "02:5e:67:03:00:00".into(),
            kind: "IEEE 802.11".into(),
            owner: "own".into(),
            stations: vec![station],
            subscribed: [("gw@left".to_owned(), vec!["Link_Up".into(), "Link_Down".into()])].into(),
        };
        let function =
            FunctionStatus { address: "[::1]:4551".into(), mihf_id: None, registered: false };
        let status = MihStatus {
            mihf_id: "link-sap@left".into(),
            links: vec![link],
            functions: vec![function],
            stranger: Some("fd00::9".into()),
            ..MihStatus::default()
        };
        let head = Head { role: "mih-link-sap".into(), uptime_s: 3.2, ..Head::default() };
        let status = Status { head, events: Vec::new(), body: status };
        let said = lines(&status, Paper { room: 120, colours: Colours::NONE });
        assert_eq!(said[0], "mih-link-sap link-sap@left, up 3 s");
        let all = said.join("\n");
        for part in [
            "function   [::1]:4551 not heard of yet (not registered there)",
            "-71 dBm  about to leave",
            "subscribed gw@left to 02:5e:67:03:00:00: Link_Up, Link_Down",
            "stranger   fd00::9 (",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
