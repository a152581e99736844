/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * The path estimator in integer arithmetic: round-trip time, its averages and jitter, one-way loss in both directions,
 * and round-trip loss. The procedures are the same as in segue_keepalive (rtt, loss, ewma), which uses floating point
 * and is the reference; a test runs both on the same trace.
 *
 * Times are microseconds modulo 2^32. Probes of a path are processed one at a time: of two that arrive simultaneously
 * on two processors the caller admits only the newer, and a race between two different ones costs at most one sample.
 */
#ifndef SEGUE_MEASURE_H
#define SEGUE_MEASURE_H

#include "segue.bpf.h"

#define ONE (1ULL << 32)
#define HALF_RANGE (1U << 31)
#define LN2 2977044472ULL       /* ln 2 in units of 2^-32 */
#define LOG2E 94548ULL          /* log2 e in units of 2^-16 */
#define MAX_RTT_US 60000000U    /* segue_keepalive::rtt::MAX_RTT */
#define MAX_T_L_US (1U << 30)   /* longer loss intervals do not fit the clock */
#define MAX_PACKETS_PER_US 150  /* segue_keepalive::loss */
#define COUNTER_SLACK (1U << 24)
#define EARLY_PACKETS 50        /* segue_keepalive::loss */
#define EARLY_AFTER_US 250000
#define LONGEST_EMPTY_US (1 << 30) /* an interval without packets counts as no longer */

enum interval {
	INTERVAL_GOES_ON,
	INTERVAL_ENDS,
	INTERVAL_GROWS_OLD, /* without a packet, so that its beginning leaves the clock's range */
};

/* The values of one probe, in the machine's byte order. */
struct sample {
	__u64 at_ns;
	__u32 stamp;    /* this end's own stamp, echoed: t_Sc at a client, t_Ss at a server */
	__u32 dt;       /* how long the peer held it */
	__u32 up_sent;  /* Sc */
	__u32 up_received; /* Rs */
	__u32 down_sent; /* Ss */
	__u32 down_received; /* Rc */
	__u32 down_us;  /* time of the downlink counters */
	__u8 has_stamp;
	__u8 has_up;
	__u8 has_down;
	__u8 late;      /* overtaken by a newer one: only its RTT is used */
	__u8 question;  /* a question, or the answer to one: ends no interval */
	__u8 echoed;    /* the downlink counters are those of the last received response */
};

/* The estimator's parameters for a path. */
struct pace {
	__u32 t_l_us;     /* loss interval, less half a period for jitter */
	__u16 n;          /* probes in a loss interval */
	__u8 early;       /* the interval may end early: segue_keepalive::loss::Pace */
	__u8 silence;     /* as in path_config */
	__u8 deaf;        /* PATH_DEAF */
};

static __always_inline __u64 times(__u64 a, __u64 b_q32)
{
	return (a >> 32) * b_q32 + (((a & 0xffffffff) * b_q32 + (1ULL << 31)) >> 32);
}

/* 1 - 2^(-j/16) in units of 2^-32. */
static const __u32 sixteenths[16] = {
	0U, 182092523U, 356464920U, 523444500U,
	683344693U, 836465643U, 983094767U, 1123507297U,
	1257966796U, 1386725654U, 1510025558U, 1628097951U,
	1741164462U, 1849437324U, 1953119772U, 2052406424U,
};

/* 1 - e^(-elapsed/tau) in units of 2^-32; `rate` is 2^48/tau. */
static __always_inline __u64 weight(__u32 elapsed_us, __u64 rate)
{
	__u64 whole, x, n, z, part, sum;

	if (rate == ~0ULL)
		return ONE;
	whole = elapsed_us * (rate >> 32);
	if (whole >> 16 >= 22)
		return ONE; /* less than 2^-31 of the average remains */
	x = (whole << 16) + (elapsed_us * (rate & 0xffffffff) >> 16);
	if (x >> 32 >= 22)
		return ONE;
	/* e^-x = 2^(-n/16) e^-z with z below ln 2/16: a table gives the first factor, a series gives 1 - e^-z. */
	n = (x >> 16) * (16 * LOG2E) >> 32;
	if ((n * LN2 >> 4) > x)
		n -= 1;
	z = x - (n * LN2 >> 4);
	sum = 178956971 - (z * 35791394 >> 32);    /* 1/4! - z/5! */
	sum = 715827883 - (z * sum >> 32);         /* 1/3! - ... */
	sum = 2147483648 - (z * sum >> 32);        /* 1/2! - ... */
	sum = z - ((z * z >> 32) * sum >> 32);
	part = sixteenths[n & 15];
	sum = part + ((ONE - part) * sum >> 32);
	n >>= 4;
	return n ? ONE - ((ONE - sum) >> (n & 63)) : sum;
}

/* Moves the average towards the sample `x`: eq. 13 with one time constant per direction. Not static, so that the
 * verifier checks it once rather than once per average. */
__noinline __u64 moved(__u64 average, __u64 x, __u32 elapsed_us, __u64 rise, __u64 fall)
{
	if (x > average)
		return average + times(x - average, weight(elapsed_us, rise));
	return average - times(average - x, weight(elapsed_us, fall));
}

/* True if a silence exceeds the range of signed clock differences. */
static __always_inline int is_long(__u64 silence_ns)
{
	return silence_ns >= HALF_RANGE * 1000ULL;
}

/* Microseconds between two samples. The clock wraps after 71 minutes; an average that old no longer matters, and
 * `silence_ns` reveals the gap. */
static __always_inline __u32 elapsed_since(__u32 at_us, __u32 last_us, __u64 silence_ns)
{
	if (is_long(silence_ns))
		return ~0U;
	return at_us - last_us;
}

static __always_inline void take_rtt(struct path_state *state, const struct scale *scale,
				     __u32 at_us, __u64 silence_ns, __u32 rtt_us)
{
	__u32 elapsed = 0, difference;
	__u64 x = (__u64)rtt_us << 32;

	if (!(state->known & KNOWN_RTT)) {
		state->rtt[0] = x;
		state->rtt[1] = x;
		state->rtt_min_us = rtt_us;
		state->rtt_max_us = rtt_us;
	} else {
		elapsed = elapsed_since(at_us, state->rtt_at_us, silence_ns);
		if ((__s32)elapsed < 0 && elapsed != ~0U)
			elapsed = 0; /* out of order */
		state->rtt[0] = moved(state->rtt[0], x, elapsed, scale->rise[0], scale->fall[0]);
		state->rtt[1] = moved(state->rtt[1], x, elapsed, scale->rise[1], scale->fall[1]);
		difference = rtt_us > state->rtt_last_us ? rtt_us - state->rtt_last_us
							 : state->rtt_last_us - rtt_us;
		/* RFC 3550, A.8: stored times sixteen, so that the gain of 1/16 loses no precision. */
		state->jitter += difference - ((state->jitter + 8) >> 4);
		if (rtt_us < state->rtt_min_us)
			state->rtt_min_us = rtt_us;
		if (rtt_us > state->rtt_max_us)
			state->rtt_max_us = rtt_us;
	}
	state->rtt_last_us = rtt_us;
	if (!(state->known & KNOWN_RTT) || elapsed)
		state->rtt_at_us = at_us;
	state->known |= KNOWN_RTT;
}

/* The RTT measured by a probe; returns 0 if it has none. A gap of half the clock's range looks negative; negative
 * values and values above a minute are discarded. */
static __always_inline int rtt_of(const struct sample *sample, __u32 at_us, __u32 *rtt_us)
{
	__u32 total = at_us - sample->stamp;

	if (total > HALF_RANGE || sample->dt > HALF_RANGE || sample->dt > total ||
	    total - sample->dt > MAX_RTT_US)
		return 0;
	*rtt_us = total - sample->dt;
	return 1;
}

/* Limits a share to 32 bits, which cannot hold a share of 1. */
static __always_inline __u64 loss_of(__u64 share)
{
	return share >= ONE - 1 ? ONE - 2 : share;
}

static __always_inline void take_loss(struct loss *loss, __u8 *known, __u8 known_average,
				      const struct scale *scale, __u32 at_us, __u64 silence_ns,
				      __u64 x)
{
	__u32 elapsed;

	x = loss_of(x);
	if (!(*known & known_average)) {
		loss->average[0] = x;
		loss->average[1] = x;
	} else {
		elapsed = elapsed_since(at_us, loss->at_us, silence_ns);
		loss->average[0] = moved(loss->average[0], x, elapsed, scale->rise[0], scale->fall[0]);
		loss->average[1] = moved(loss->average[1], x, elapsed, scale->rise[1], scale->fall[1]);
	}
	loss->at_us = at_us;
	*known |= known_average;
}

/* True if an interval ends with this probe, by the rule of segue_keepalive::loss::Pace; `lasted_us` is modulo 2^32, and
 * signed when the silence is known. Not static: see `moved`. */
__noinline int interval_ends(__u32 lasted_us, __u64 silence_ns, __u32 sent, __u32 t_l_us, int early)
{
	__u64 silence_us = silence_ns / 1000;
	/* The clock gives the low bits, and the silence the others. */
	__s64 lasted = silence_us - (__s32)((__u32)silence_us - lasted_us);

	if (!sent)
		return lasted >= LONGEST_EMPTY_US ? INTERVAL_GROWS_OLD : INTERVAL_GOES_ON;
	if (lasted >= t_l_us || (early && sent >= EARLY_PACKETS && lasted >= EARLY_AFTER_US))
		return INTERVAL_ENDS;
	return INTERVAL_GOES_ON;
}

/* True if the interval is over and contains packets. */
static __always_inline int is_due(struct loss *loss, __u32 at_us, const struct pace *pace,
				  __u64 silence_ns, __u32 in_interval)
{
	int found = interval_ends(at_us - loss->at_us, silence_ns, in_interval, pace->t_l_us,
				  pace->early);

	if (found == INTERVAL_GROWS_OLD)
		loss->at_us = at_us - LONGEST_EMPTY_US;
	return found == INTERVAL_ENDS;
}

/* The missing share of `sent`, in units of 2^-32. */
static __always_inline __u64 share_lost(__u32 sent, __u32 received)
{
	return received >= sent ? 0 : ((__u64)(sent - received) << 32) / sent;
}

/* In the lower half the loss of an interval, corrected by the surplus of the previous one, in units of 2^-32; in the
 * upper half the surplus of this interval. Not static: see `moved`. */
__noinline __u64 evaluate(__u32 sent, __u32 came, __u32 surplus)
{
	__u64 lost = sent ? loss_of(share_lost(sent, came + surplus)) : 0;

	return lost | (__u64)(came > sent ? came - sent : 0) << 32;
}

static __always_inline void begin_interval(struct loss *loss, __u32 at_us)
{
	loss->start_sent = loss->sent;
	loss->start_received = loss->received;
	loss->surplus = 0;
	loss->at_us = at_us;
}

static __always_inline __u16 fit16(__u32 value)
{
	return value > 0xffff ? 0xffff : value;
}

/* True if a counter has grown by more packets than can arrive in this time. */
static __always_inline int too_many(__u32 grown, __u64 silence_ns)
{
	__u64 most;

	if (grown <= COUNTER_SLACK)
		return 0; /* the usual case, without a division */
	most = silence_ns / 1000 * MAX_PACKETS_PER_US + COUNTER_SLACK;
	if (most > HALF_RANGE || silence_ns >> 40)
		most = HALF_RANGE;
	return grown > most;
}

/* The bits of `known` after a probe in an outage, and the outage's silence in microseconds, for a `silence` other than
 * 0. */
_Static_assert(KNOWN_TURN == SILENCE_TURN, "told by the same bit");
#define OUT_BITS (KNOWN_OUT | KNOWN_TURN)

static __always_inline __u8 out_bits(__u8 silence)
{
	return KNOWN_OUT | (silence & SILENCE_TURN);
}

static __always_inline __u64 silence_us(__u8 silence)
{
	__u32 steps = (silence & SILENCE_MASK) - 1, sixteenth = 2 * steps & 15, whole = steps >> 3;
	__u64 us = (__u64)SILENCE_UNIT_US << (whole & 15);

	return sixteenth ? us * ((ONE - sixteenths[(16 - sixteenth) & 15]) >> 8) >> 23 : us;
}

/* Packets sent in one direction since the last probe, and how many of them were received. */
struct grown {
	__u32 sent;
	__u32 received;
};

/* In the lower half a part of the packets `sent`, at least without the last; in the upper half how many packets of this
 * part were received, dividing the losses evenly (segue_keepalive::loss). Not static: see `moved`. */
__noinline __u64 part_of(__u32 sent, __u32 received, __u64 part, __u32 at_us)
{
	__u32 others = sent > 1 ? sent - 1 : 1, chance = at_us * 2654435761U;
	__u64 lost = received >= sent ? 0 : sent - received;

	if (part >= sent)
		part = sent - !!sent;
	lost = (lost * part + ((__u64)chance * others >> 32)) / others;
	return part | (lost > part ? 0 : part - lost) << 32;
}

static __always_inline struct grown kept_of(struct grown all, __u64 part, __u32 at_us)
{
	__u64 kept = part_of(all.sent, all.received, part, at_us);

	return (struct grown){ .sent = kept, .received = kept >> 32 };
}

/* Shifts an interval's start by a time that does not belong to it. */
static __always_inline void put_off(struct loss *loss, __u32 time_us)
{
	loss->at_us += time_us;
}

/* Excludes from the interval the packets and the time of the outage while the path is declared down. */
static __always_inline void leave_out(struct loss *loss, __u8 known, const struct pace *pace,
				      struct grown all, int echoed, __u32 at_us, __u64 silence_ns)
{
	__u64 whole_us = silence_ns / 1000, time_us = whole_us, passed_us;
	struct grown kept = {};
	int out = (known & OUT_BITS) == out_bits(pace->silence);

	if (!out && pace->deaf) {
		/* While the host echoes the same values, neither packets nor time count. */
		kept = kept_of(all, silence_us(pace->silence) / SILENCE_UNIT_US, at_us);
	} else if (!out && echoed) {
		kept = all; /* from before the outage */
	} else if (!out) {
		passed_us = silence_us(pace->silence);
		kept = passed_us < whole_us ? kept_of(all, all.sent * passed_us / whole_us, at_us)
					    : all;
		if (all.sent && whole_us >> 32)
			time_us = whole_us / all.sent * (all.sent - kept.sent);
		else if (all.sent)
			time_us = whole_us * (all.sent - kept.sent) / all.sent;
	}
	loss->start_sent += all.sent - kept.sent;
	loss->start_received += all.received - kept.received;
	put_off(loss, time_us);
}

/* One-way loss (section 4.2) from the counters of a probe, as they were at `of_us`. */
static __always_inline void take_pair(struct loss *loss, __u8 *known, __u8 bit,
				      const struct scale *scale, const struct pace *pace,
				      const struct sample *sample, __u32 of_us, int echoed,
				      __u64 silence_ns, __u32 sent, __u32 received)
{
	struct grown all = { sent - loss->sent, received - loss->received };
	__u32 in_interval;
	__u64 found;

	loss->sent = sent;
	loss->received = received;
	if (!(*known & bit)) {
		loss->base_sent = fit16(sent);
		loss->base_received = fit16(received);
		*known |= bit;
		begin_interval(loss, of_us);
		return;
	}
	if (too_many(all.sent, silence_ns) || too_many(all.received, silence_ns)) {
		begin_interval(loss, of_us);
		return;
	}
	if (pace->silence && (echoed || !pace->deaf)) {
		leave_out(loss, *known, pace, all, echoed, (__u32)(sample->at_ns / 1000),
			  silence_ns);
		silence_ns = 0;
	}
	in_interval = sent - loss->start_sent;
	if (!is_due(loss, of_us, pace, silence_ns, in_interval) || sample->question)
		return;
	found = evaluate(in_interval, received - loss->start_received, loss->surplus);
	take_loss(loss, known, bit << 1, scale, of_us, silence_ns, (__u32)found);
	loss->surplus = found >> 32;
	loss->start_sent = sent;
	loss->start_received = received;
}

/* Evaluates the round-trip loss (appendix III) of an interval whose requests have all been sent, from a client's own
 * counts of requests sent and responses received. Surplus responses, to requests of an earlier interval, are carried
 * over. `silence_ns` is the time without a request or a response. */
static __always_inline void evaluate_round_trip(struct host_state *host, const struct scale *scale,
						const struct pace *pace, __u32 at_us,
						__u64 silence_ns, __u32 sent,
						__u32 received)
{
	struct loss *loss = &host->round_trip;
	__u32 in_interval = sent - loss->start_sent;
	__u32 came = received - loss->start_received;
	__u64 lost;

	if (in_interval < pace->n)
		return;
	lost = share_lost(in_interval, came);
	take_loss(loss, &host->known, KNOWN_UP_AVERAGE, scale, at_us, silence_ns, lost);
	lost = loss_of(lost);
	host->unreported = lost + 1;
	loss->start_sent = sent;
	loss->start_received = came > in_interval ? received - (came - in_interval) : received;
}

/* Updates the round-trip loss with a response; the first one sets the baseline. */
static __always_inline void take_round_trip(struct host_state *host, const struct scale *scale,
					    const struct pace *pace, __u32 at_us,
					    __u64 silence_ns, __u32 received)
{
	struct loss *loss = &host->round_trip;

	if (host->known & KNOWN_UP) {
		evaluate_round_trip(host, scale, pace, at_us, silence_ns, host->sent, received);
		return;
	}
	loss->sent = host->sent;
	loss->received = received;
	host->known |= KNOWN_UP;
	begin_interval(loss, at_us);
}

/* Length of the silence before `at_ns`. `state->received_ns` still holds the time of the previous probe. */
static __always_inline __u64 silence_before(const struct path_state *state, __u64 at_ns)
{
	__u64 silence_ns = at_ns - state->received_ns;

	return (__s64)silence_ns < 0 || !state->received_ns ? 0 : silence_ns;
}

/* Time in which a host has neither sent a request nor received a response. */
static __always_inline __u64 idle_before(const struct path_state *state,
					 const struct host_state *host, __u64 at_ns)
{
	__u64 sent_ns = host->sent_ns, last_ns = state->received_ns;

	last_ns = last_ns > sent_ns ? last_ns : sent_ns;
	return last_ns && at_ns > last_ns ? at_ns - last_ns : 0;
}

/* Updates the path's state with a probe. */
static __always_inline void take_sample(struct path_state *state, const struct scale *scale,
					const struct pace *pace, const struct sample *sample)
{
	__u32 at_us = (__u32)(sample->at_ns / 1000), rtt_us;
	__u64 silence_ns = silence_before(state, sample->at_ns);
	__u32 echoed = state->down.sent;

	if (sample->has_stamp && rtt_of(sample, at_us, &rtt_us))
		take_rtt(state, scale, at_us, silence_ns, rtt_us);
	else if (is_long(silence_ns))
		state->rtt_at_us = at_us - HALF_RANGE / 2; /* long ago, for the next sample too */
	if (sample->late) {
		/* The next silence starts here. */
		if (pace->silence && (state->known & OUT_BITS) == out_bits(pace->silence)) {
			put_off(&state->up, silence_ns / 1000);
			put_off(&state->down, silence_ns / 1000);
		}
		return;
	}
	if (sample->has_up)
		take_pair(&state->up, &state->known, KNOWN_UP, scale, pace, sample, at_us, 0,
			  silence_ns, sample->up_sent, sample->up_received);
	if (sample->has_down)
		take_pair(&state->down, &state->known, KNOWN_DOWN, scale, pace, sample,
			  sample->down_us, sample->echoed, silence_ns, sample->down_sent,
			  sample->down_received);
	else if (is_long(silence_ns))
		is_due(&state->down, at_us, pace, silence_ns, 0);
	/* For a host that hears nothing, the outage begins with the first echo that differs. */
	if (pace->deaf && (state->known & OUT_BITS) != out_bits(pace->silence) &&
	    state->down.sent == echoed)
		return;
	state->known &= ~OUT_BITS;
	if (pace->silence)
		state->known |= out_bits(pace->silence);
}

/* Thresholds: the short RTT average differs from the long one by more than a quarter of the long one plus 1 ms; a short
 * average of loss exceeds 2 %. Each is one bit of state; true if one has changed. */
#define RTT_MARGIN (1000ULL << 32)
#define LOSS_LIMIT 85899346U

static __always_inline int crosses_with(struct path_state *state, __u8 now)
{
	__u64 shorter = state->rtt[0], longer = state->rtt[1], margin = longer / 4 + RTT_MARGIN;
	__u64 apart = shorter > longer ? shorter - longer : longer - shorter;
	__u8 before = state->crossed;

	if (state->known & KNOWN_RTT && apart > margin)
		now |= CROSSED_RTT;
	if (state->known & KNOWN_UP_AVERAGE && state->up.average[0] > LOSS_LIMIT)
		now |= CROSSED_UP;
	if (state->known & KNOWN_DOWN_AVERAGE && state->down.average[0] > LOSS_LIMIT)
		now |= CROSSED_DOWN;
	state->crossed = now;
	return now != before;
}

static __always_inline int crosses(struct path_state *state)
{
	return crosses_with(state, 0);
}

/* The thresholds at a host, which may measure round-trip loss. */
static __always_inline int crosses_at_host(struct path_state *state, const struct host_state *host)
{
	int lossy = host->known & KNOWN_UP_AVERAGE && host->round_trip.average[0] > LOSS_LIMIT;

	return crosses_with(state, lossy ? CROSSED_UP : 0);
}

#endif
