# The network of `segue sim dumbbell` in ns-2: one greedy sender, one link, armed losses.
# usage: ns compare-ns2.tcl KIND RATE DELAY QUEUE PACKET WINDOW DURATION DROPS OPTIONS [TRACE]
# KIND is the class behind Agent/TCP ("" for Tahoe), DROPS is "TIME:COUNT,…" in seconds or "-", OPTIONS a
# list "NAME VALUE …" of the agent's variables, TRACE a file for its window and packets.
# Prints: delivered sent retransmissions timeouts
lassign $argv kind rate delay queue packet window duration drops options trace

# Only the headers in use: a packet of ns-2 is as large as everything that it might carry.
remove-all-packet-headers
add-packet-header Flags IP TCP

set ns [new Simulator]
set n0 [$ns node]
set n1 [$ns node]
$ns duplex-link $n0 $n1 $rate $delay DropTail
$ns queue-limit $n0 $n1 $queue
$ns queue-limit $n1 $n0 $queue

set tcp [new Agent/TCP$kind]
set sink [new Agent/TCPSink[expr {$kind in {/Sack1 /Fack} ? "/Sack1" : ""}]]
$tcp set window_ $window
foreach {name value} $options { $tcp set $name $value }
$ns attach-agent $n0 $tcp
$ns attach-agent $n1 $sink
$ns connect $tcp $sink
# There are no handshake packets, and packetSize_ is the whole size on the wire.
$tcp set syn_ false
$tcp set delay_growth_ false
$tcp set useHeaders_ false
$tcp set packetSize_ $packet
set ftp [new Application/FTP]
$ftp attach-agent $tcp

# A link hands a packet to its target when serialisation starts, timed for its arrival: a new target applies to
# packets that start from then on.
set wire [[$ns link $n0 $n1] set link_]
set beyond [$wire target]
proc arm {count} {
  global wire beyond
  set model [new ErrorModel/List]
  $model unit pkt
  set list {}
  for {set i 0} {$i < $count} {incr i} { lappend list $i }
  $model droplist $list
  $model target $beyond
  $model drop-target [new Agent/Null]
  $wire target $model
}
if {$drops ne "-"} {
  foreach drop [split $drops ,] {
    lassign [split $drop :] time count
    $ns at $time "arm $count"
  }
}

if {$trace ne ""} {
  set out [open $trace w]
  $ns trace-queue $n0 $n1 $out
  $tcp attach $out
  foreach name {cwnd_ ssthresh_ t_seqno_ ack_ dupacks_ rtt_ srtt_ rttvar_ backoff_} { $tcp trace $name }
}

proc finish {} {
  global tcp
  puts "[expr [$tcp set ack_] + 1] [$tcp set ndatapack_] [$tcp set nrexmitpack_] [$tcp set nrexmit_]"
  exit 0
}
$ns at 0 "$ftp start"
# The receiver's last packets are acknowledged half a round trip later.
set wire_s [expr [$wire set delay_] + 40 * 8.0 / [$wire set bandwidth_]]
$ns at [expr $duration + $wire_s] finish
$ns run
