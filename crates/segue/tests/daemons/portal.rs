//! A captive portal is recognized, and its page can be opened outside the tunnel.

use std::io::{Read, Write};
use std::net::TcpListener;

use segue_lab::DemoNet;
use segue_linux::netns::Netns;

use crate::doctor::{doctor, expect};
use crate::world::{SEGUE, World, nft, path, text};

/// A web server on this port of a node: answers `/login` with `who`, and redirects any other request there.
fn web(node: &Netns, port: u16, who: &'static str) {
    let listener = node.run(|| TcpListener::bind(("0.0.0.0", port)).unwrap()).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1_024];
            let read = stream.read(&mut request).unwrap_or(0);
            let login = request[..read].starts_with(b"GET /login");
            let answer = match login {
                true => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{who}", who.len()),
                false => "HTTP/1.1 302 Found\r\nLocation: http://login.test/login?net=1&a=b\r\n\
                          Content-Length: 0\r\n\r\n"
                    .into(),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// The text of the correspondent's page as a program on the host reads it.
fn page(world: &World, through: &[&str]) -> String {
    let url = format!("http://{}/login", DemoNet::CN.0);
    let program = ["curl", "--silent", "--show-error", "--max-time", "10", &url];
    let all = [through, &program].concat();
    let output = world.net.host().command(all[0]).args(&all[1..]).output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_captive_portal_is_named_and_its_page_is_one_command_away() {
    let _turn = crate::among_others();
    let Some(world) = World::new("user") else { return };
    // All TCP traffic to port 80 over wifi is redirected to the router; everything else is dropped.
    nft(
        world.net.router(),
        "table inet portal { \
           chain before { type nat hook prerouting priority dstnat; \
             iifname wifi tcp dport 80 redirect to :8080; }; \
           chain through { type filter hook forward priority 0; \
             iifname wifi drop; oifname wifi drop; }; }",
    );
    web(world.net.router(), 8_080, "the portal");
    web(world.net.cn(), 80, "the world");
    let anchor = world.anchor();
    let host = world.host(&world.enroll(&anchor, "laptop"));
    host.wait("lte is up", |status| path(status, "lte")["state"] == "up");

    let socket = host.socket();
    let (_, lines) = doctor(world.net.host(), &["--control", socket.to_str().unwrap()]);
    let command = "sudo segue run --path wifi -- xdg-open 'http://login.test/login?net=1&a=b'";
    expect(&lines, "portal", "todo", command);
    let portals = lines.iter().filter(|(check, ..)| check == "portal").count();
    assert_eq!(portals, 1, "lte has none: {lines:#?}");

    assert_eq!(page(&world, &[]), "the world", "through the tunnel");
    let run = [SEGUE, "run", "--path", "wifi", "--"];
    assert_eq!(page(&world, &run), "the portal", "over wifi");
    // Child processes take the same way, and the exit status is the program's.
    let shell = [&run[..], &["sh", "-c", "\"$@\"; exit 7", "sh"]].concat();
    assert_eq!(page(&world, &shell), "the portal");
    let mut ends = world.net.host().command(SEGUE);
    ends.args(["run", "--path", "wifi", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ends.status().unwrap().code(), Some(7));
    assert_eq!(page(&world, &[]), "the world", "and nothing else does");
    // It can still query a resolver on this machine.
    let local = [&run[..], &["sh", "-c", "getent hosts localhost"]].concat();
    let output = world.net.host().command(local[0]).args(&local[1..]).status().unwrap();
    assert!(output.success());

    for (args, part) in [
        (&["run", "--path", "wlan7", "--", "true"][..], "no interface wlan7; up are "),
        (&["run", "--path", "wifi", "--", "no-such-program"], "cannot run no-such-program"),
    ] {
        let refused = world.net.host().command(SEGUE).args(args).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(part), "{said}");
    }
}
