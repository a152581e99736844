/* Answers Segue's probes over UDP like paper 1's C program: one recvfrom and one sendto for each. In between it
 * authenticates, counts, averages and seals, like the other responders.
 * usage: reflector PORT PATHS RECEIVE_BUFFER */
#include <arpa/inet.h>
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define LENGTH 56
#define COVERED 48
#define REQUEST 0x12
#define RESPONSE 0x13
/* Weight of a sample in the averages, and requests in an interval over which loss is taken. */
#define WEIGHT 0.125
#define INTERVAL 100

/* State of a path. */
struct path {
	int seen;
	uint32_t last_seq, received, sent, interval_sent, interval_received;
	double rtt_us, loss;
};

static uint32_t get32(const uint8_t *packet, int at)
{
	uint32_t word;

	memcpy(&word, packet + at, sizeof(word));
	return be32toh(word);
}

static uint64_t get64(const uint8_t *packet, int at)
{
	uint64_t word;

	memcpy(&word, packet + at, sizeof(word));
	return be64toh(word);
}

static void put32(uint8_t *packet, int at, uint32_t value)
{
	value = htobe32(value);
	memcpy(packet + at, &value, sizeof(value));
}

static void put64(uint8_t *packet, int at, uint64_t value)
{
	value = htobe64(value);
	memcpy(packet + at, &value, sizeof(value));
}

static uint32_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t)(now.tv_sec * 1000000ULL + now.tv_nsec / 1000);
}

static uint64_t rotate(uint64_t word, int by)
{
	return word << by | word >> (64 - by);
}

/* SipHash-2-4 over the authenticated bytes, with the bench's key of a path. */
static uint64_t mac(const uint8_t *packet, uint32_t slot)
{
	uint64_t k0 = 0x0706050403020100ULL ^ slot, k1 = 0x0f0e0d0c0b0a0908ULL;
	uint64_t v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
	uint64_t v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;

	for (int i = 0; i < COVERED / 8 + 3; i++) {
		uint64_t word = 0;

		if (i < COVERED / 8) {
			memcpy(&word, packet + 8 * i, sizeof(word));
			word = le64toh(word);
		} else if (i == COVERED / 8) {
			word = (uint64_t)COVERED << 56;
		} else if (i == COVERED / 8 + 1) {
			v2 ^= 0xff;
		}
		v3 ^= word;
		for (int round = 0; round < 2; round++) {
			v0 += v1;
			v2 += v3;
			v1 = rotate(v1, 13) ^ v0;
			v3 = rotate(v3, 16) ^ v2;
			v0 = rotate(v0, 32) + v3;
			v2 += v1;
			v1 = rotate(v1, 17) ^ v2;
			v3 = rotate(v3, 21) ^ v0;
			v2 = rotate(v2, 32);
		}
		v0 ^= word;
	}
	return v0 ^ v1 ^ v2 ^ v3;
}

static void measure(struct path *path, const uint8_t *packet, uint32_t arrived)
{
	uint32_t rtt = arrived - get32(packet, 24) - get32(packet, 28);
	uint32_t sent = get32(packet, 32) - path->interval_sent;

	path->seen = 1;
	path->last_seq = get32(packet, 16);
	path->received++;
	path->rtt_us += (rtt - path->rtt_us) * WEIGHT;
	if (sent >= INTERVAL) {
		double loss = 1.0 - (double)(path->received - path->interval_received) / sent;

		path->loss += (loss - path->loss) * WEIGHT;
		path->interval_sent += sent;
		path->interval_received = path->received;
	}
}

/* Turns a request into its response in place; 0 if the request is rejected. */
static int answer(struct path *paths, uint32_t count, uint8_t *packet)
{
	uint32_t arrived = now_us(), slot = get32(packet, 4), now;
	struct path *path;
	uint64_t seal;

	if (packet[0] != REQUEST || slot >= count ||
	    get64(packet, 8) != (0x5e60ULL << 48 | slot))
		return 0;
	memcpy(&seal, packet + COVERED, sizeof(seal));
	if (le64toh(seal) != mac(packet, slot))
		return 0;
	path = &paths[slot];
	if (path->seen && (int32_t)(get32(packet, 16) - path->last_seq) <= 0)
		return 0;
	measure(path, packet, arrived);
	packet[0] = RESPONSE;
	packet[1] = 0;
	put32(packet, 4, slot + 0x100000);
	put64(packet, 8, 0xa560ULL << 48 | slot);
	now = now_us();
	put32(packet, 24, now);
	put32(packet, 28, now - arrived);
	put32(packet, 36, ++path->sent);
	put32(packet, 40, path->received);
	seal = htole64(mac(packet, slot));
	memcpy(packet + COVERED, &seal, sizeof(seal));
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET }, from;
	uint8_t packet[2048];
	struct path *paths;
	uint32_t count;
	int fd, buffer;

	if (argc != 4) {
		fprintf(stderr, "usage: reflector PORT PATHS RECEIVE_BUFFER\n");
		return 2;
	}
	buffer = atoi(argv[3]);
	own.sin_port = htons((uint16_t)atoi(argv[1]));
	count = (uint32_t)atoi(argv[2]);
	paths = calloc(count, sizeof(*paths));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (!paths || fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own))) {
		perror("reflector");
		return 1;
	}
	/* As large as that of the other responders; a smaller buffer is sufficient. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
	for (;;) {
		socklen_t size = sizeof(from);
		ssize_t length = recvfrom(fd, packet, sizeof(packet), 0, (struct sockaddr *)&from, &size);

		/* An answer that does not fit into the device's queue is lost, as in practice. */
		if (length == LENGTH && answer(paths, count, packet))
			sendto(fd, packet, LENGTH, 0, (struct sockaddr *)&from, size);
	}
}
