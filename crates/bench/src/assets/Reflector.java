import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Answers Segue's probes over UDP, one at a time: authenticates, counts, averages, seals. */
public final class Reflector {
    private static final int LENGTH = 56, COVERED = 48;

    /** State of a path. */
    private static final class State {
        boolean seen;
        int lastSeq, received, sent, intervalReceived, intervalSent;
        double rttUs, loss;
    }

    private final State[] states;

    private Reflector(int paths) {
        states = new State[paths];
        for (int i = 0; i < paths; i++) {
            states[i] = new State();
        }
    }

    public static void main(String[] args) throws Exception {
        Reflector reflector = new Reflector(Integer.parseInt(args[1]));
        byte[] buffer = new byte[2048];
        DatagramPacket packet = new DatagramPacket(buffer, buffer.length);
        try (DatagramSocket socket = new DatagramSocket(Integer.parseInt(args[0]))) {
            while (true) {
                packet.setData(buffer);
                socket.receive(packet);
                if (packet.getLength() == LENGTH && reflector.answer(ByteBuffer.wrap(buffer, 0, LENGTH))) {
                    packet.setLength(LENGTH);
                    socket.send(packet);
                }
            }
        }
    }

    private static int microseconds() {
        return (int) (System.nanoTime() / 1000);
    }

    /** Turns a request into its response in place; false if the request is rejected. */
    private boolean answer(ByteBuffer p) {
        int arrived = microseconds();
        int slot = p.getInt(4);
        if (p.get(0) != 0x12 || slot < 0 || slot >= states.length || p.getLong(8) != Key.cookie(slot)) {
            return false;
        }
        ByteBuffer little = p.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        if (Key.mac(little, slot) != little.getLong(COVERED)) {
            return false;
        }
        State s = states[slot];
        int seq = p.getInt(16);
        if (s.seen && seq - s.lastSeq <= 0) {
            return false;
        }
        measure(s, seq, p, arrived);
        p.put(0, (byte) 0x13).put(1, (byte) 0);
        p.putInt(4, Key.peer(slot)).putLong(8, Key.peerCookie(slot));
        int now = microseconds();
        p.putInt(24, now).putInt(28, now - arrived).putInt(36, ++s.sent).putInt(40, s.received);
        little.putLong(COVERED, Key.mac(little, slot));
        return true;
    }

    private static void measure(State s, int seq, ByteBuffer p, int arrived) {
        s.seen = true;
        s.lastSeq = seq;
        s.received++;
        int rtt = arrived - p.getInt(24) - p.getInt(28);
        s.rttUs += (rtt - s.rttUs) / 8;
        int sent = p.getInt(32);
        if (sent - s.intervalSent >= 100) {
            double loss = 1 - (double) (s.received - s.intervalReceived) / (sent - s.intervalSent);
            s.loss += (loss - s.loss) / 8;
            s.intervalSent = sent;
            s.intervalReceived = s.received;
        }
    }

    /** A path's numbers, as the bench gives them out, and SipHash-2-4. */
    private static final class Key {
        static long cookie(int slot) {
            return 0x5e60000000000000L | slot;
        }

        static int peer(int slot) {
            return slot + 0x100000;
        }

        static long peerCookie(int slot) {
            return 0xa560000000000000L | slot;
        }

        static long mac(ByteBuffer p, int slot) {
            long k0 = 0x0706050403020100L ^ slot, k1 = 0x0f0e0d0c0b0a0908L;
            long v0 = k0 ^ 0x736f6d6570736575L, v1 = k1 ^ 0x646f72616e646f6dL;
            long v2 = k0 ^ 0x6c7967656e657261L, v3 = k1 ^ 0x7465646279746573L;
            for (int i = 0; i <= COVERED / 8 + 2; i++) {
                boolean message = i <= COVERED / 8;
                long word = !message ? 0 : i == COVERED / 8 ? (long) COVERED << 56 : p.getLong(8 * i);
                if (i == COVERED / 8 + 1) {
                    v2 ^= 0xff;
                }
                v3 ^= word;
                for (int round = 0; round < 2; round++) {
                    v0 += v1;
                    v2 += v3;
                    v1 = Long.rotateLeft(v1, 13) ^ v0;
                    v3 = Long.rotateLeft(v3, 16) ^ v2;
                    v0 = Long.rotateLeft(v0, 32) + v3;
                    v2 += v1;
                    v1 = Long.rotateLeft(v1, 17) ^ v2;
                    v3 = Long.rotateLeft(v3, 21) ^ v0;
                    v2 = Long.rotateLeft(v2, 32);
                }
                v0 ^= word;
            }
            return v0 ^ v1 ^ v2 ^ v3;
        }
    }
}
