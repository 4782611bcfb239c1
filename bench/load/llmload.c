/* llmload - single-threaded epoll load generator for OpenAI-style gateways.
 *
 *   llmload -P PORT [-m closed|rate|stream] [-c CONNS] [-r RATE] [-d SECS] [-w WARMUP_SECS]
 *           [-b PROMPT_BYTES] [-n CHUNKS] [-g GAP_US] [-t TTFT_US] [-p PATH] [-M MODEL] [-H 'Name: value']... [-T] [-f BODY_FILE]
 *
 * closed : CONNS keep-alive connections, each sends its next request when the reply is complete
 * rate   : open loop, RATE requests/s at fixed times over at most CONNS connections; latency counts
 *          from the scheduled time when the request had to wait for a connection
 * stream : CONNS concurrent SSE streams of CHUNKS events GAP_US apart (asked of mock_openai by a tag
 *          in the prompt), restarted for ever; TTFT, gaps between reads of content events, and the
 *          one-way delay from the mock's write to our read (timestamps in the content)
 *
 * Only replies that began after the warm-up are measured.  Every prompt differs from every other: behind
 * its tag it has a number that is never used again.  At the end nothing new is begun and what is under way
 * is read to its end (15 s at most), so that "started" and "replies" can be held against the gateway's books.
 * With -f the body is a file's, in which the first 19 zeros are the number's place.
 * With -T every request has a traceparent of its own.  One JSON line on stdout.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct { uint32_t *v; size_t n, cap; } vec;       /* samples, in units of 0.1 us */
static void vadd(vec *a, uint64_t ns) {
    if (a->n == a->cap) { a->cap = a->cap ? a->cap * 2 : 65536; a->v = realloc(a->v, a->cap * 4); }
    ns /= 100; a->v[a->n++] = ns > 0xffffffffu ? 0xffffffffu : (uint32_t)ns;
}
static int cmp32(const void *a, const void *b) { uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b; return x < y ? -1 : x > y; }
static double pct(vec *a, double p) {                     /* us; the vector must be sorted */
    if (!a->n) return -1;
    size_t i = (size_t)(p / 100 * (a->n - 1) + 0.5);
    return a->v[i] / 10.0;
}

enum { IDLE, WAIT, CONNECTING };
typedef struct {
    int fd, st; bool want_out, fresh, close_after;
    char *req; size_t rlen, roff, rcap;
    uint64_t t0, tprev; bool counted; int chunks; unsigned nreq;
    /* reply parser */
    char head[32768]; size_t hn; bool in_body; int status;
    bool chunked; int cs; uint64_t left; bool until_close;
    char tail[48]; int tn;
    int dig; char dg[20];
    size_t body_bytes;
} conn;

static enum { CLOSED, RATE, STREAM } mode;
static int port, nconn = 64, ep, nbody = 256;
static double rate = 100, secs = 8, warm = 2;
static long prompt = 1024, chunks = 64, gap = 20000, ttft = 0;
static const char *path = "/v1/chat/completions", *model = "mock-model", *body_file;
#define TRACE_HEAD "traceparent: 00-5f4b3a2c1d0e9"
static char hdrs[8192];
static bool traced; static size_t *trace_at; /* where a traceparent has its request's number */
static char **bodies; static size_t *blen, *number_at; static unsigned long seq; static uint64_t number;
static conn *cs;
static uint64_t t_begin, t_warm, t_end;
static vec lat, ttfts, gaps, jit, transit, dur;
static uint64_t replies, ok, err, reconn, bad_stream, n_chunks, n_reads, n_started, late_q;
static bool err_shown;
static int idle_stack[65536], idle_n;
static uint64_t *queue; static size_t q_head, q_tail, q_cap;
static int cur_read_chunks;

static uint64_t now_ns(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void arm(conn *c, bool out) {
    if (c->want_out == out) return;
    c->want_out = out;
    struct epoll_event e = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}
static void push(conn *c) {
    while (c->roff < c->rlen) {
        ssize_t k = send(c->fd, c->req + c->roff, c->rlen - c->roff, MSG_NOSIGNAL);
        if (k < 0) { if (errno == EAGAIN || errno == ENOTCONN) { arm(c, true); return; } return; /* reset: seen by recv */ }
        c->roff += k;
    }
    arm(c, false);
}
static void dial(conn *c) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int one = 1; setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (void *)&a, sizeof a) && errno != EINPROGRESS) { perror("connect"); exit(1); }
    struct epoll_event e = { .events = EPOLLIN | EPOLLOUT, .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    c->want_out = true; c->fresh = true;
}
static void begin(conn *c, uint64_t t0) {
    int i = seq++ % nbody;
    if (c->rcap < blen[i]) { c->rcap = blen[i]; c->req = realloc(c->req, c->rcap); }
    memcpy(c->req, bodies[i], blen[i]); c->rlen = blen[i]; c->roff = 0;
    uint64_t no = number++;
    for (int d = 18; d >= 0; d--) {
        c->req[number_at[i] + d] = '0' + no % 10;
        if (traced) c->req[trace_at[i] + d] = '0' + no % 10;
        no /= 10;
    }
    c->t0 = t0; c->tprev = 0; c->counted = t0 >= t_warm; c->chunks = 0; c->nreq++;
    c->hn = 0; c->in_body = false; c->tn = 0; c->dig = -1; c->body_bytes = 0; c->status = 0;
    c->st = WAIT; n_started++;
    if (c->fd < 0) dial(c); else push(c);
}
static void note_error(conn *c, const char *why) {
    err++;
    if (!err_shown) { err_shown = true; fprintf(stderr, "first error: %s status=%d head/body: %.*s\n", why, c->status, (int)(c->hn > 3000 ? 3000 : c->hn), c->head); }
}
static void hangup(conn *c) { if (c->fd >= 0) close(c->fd); c->fd = -1; c->want_out = false; }
static void next(conn *c, uint64_t t) {
    if (t >= t_end) { c->st = IDLE; return; }
    if (mode == RATE) {
        if (q_head != q_tail) { uint64_t s = queue[q_head++ % q_cap]; begin(c, s); }
        else { c->st = IDLE; idle_stack[idle_n++] = c - cs; }
    } else begin(c, t);
}
static void done(conn *c, uint64_t t) {
    bool good = c->status == 200;
    replies++;
    if (!good) note_error(c, "bad status");
    else if (c->counted && t <= t_end) { ok++; vadd(&lat, t - c->t0); }
    if (good && mode == STREAM) {
        bool d = c->tn && memmem(c->tail, c->tn, "[DONE]", 6);
        if (!d || c->chunks != chunks) { bad_stream++; if (bad_stream == 1) fprintf(stderr, "stream: %d chunks, done=%d\n", c->chunks, d); }
        if (c->counted) vadd(&dur, t - c->t0);
    }
    if (c->close_after) hangup(c);
    next(c, t);
}
static void on_ts(conn *c, uint64_t ts, uint64_t t) {
    c->chunks++;
    if (t >= t_warm && t <= t_end) { n_chunks++; cur_read_chunks++; vadd(&transit, t > ts ? t - ts : 0); }
    if (c->counted && t <= t_end) {
        if (c->chunks == 1) vadd(&ttfts, t - c->t0);
        else {
            vadd(&gaps, t - c->tprev);
            int64_t j = (int64_t)(t - c->tprev) - gap * 1000; vadd(&jit, j < 0 ? -j : j);
        }
    }
    c->tprev = t;
}
static void body(conn *c, const char *b, size_t n, uint64_t t) {
    c->body_bytes += n;
    if (c->status != 200 && c->hn < sizeof c->head - 1) { size_t k = sizeof c->head - 1 - c->hn; if (k > n) k = n; memcpy(c->head + c->hn, b, k); c->hn += k; }
    if (mode != STREAM) return;
    if (n >= sizeof c->tail) { memcpy(c->tail, b + n - sizeof c->tail, sizeof c->tail); c->tn = sizeof c->tail; }
    else {
        size_t keep = sizeof c->tail - n; if ((size_t)c->tn < keep) keep = c->tn;
        memmove(c->tail, c->tail + c->tn - keep, keep); memcpy(c->tail + keep, b, n); c->tn = keep + n;
    }
    const char *e = b + n;
    while (b < e) {
        if (c->dig < 0) { b = memchr(b, '@', e - b); if (!b) return; b++; c->dig = 0; continue; }
        char ch = *b;
        if (c->dig < 19 && ch >= '0' && ch <= '9') { c->dg[c->dig++] = ch; b++; }
        else if (c->dig == 19 && ch == '@') { c->dg[19] = 0; on_ts(c, strtoull(c->dg, NULL, 10), t); c->dig = -1; b++; }
        else c->dig = -1;                   /* not one of ours; look at this byte again */
    }
}
/* feeds bytes; true when the reply is complete */
static bool feed(conn *c, const char *b, size_t n, uint64_t t) {
    const char *e = b + n;
    if (!c->in_body) {
        size_t k = n, old = c->hn; if (old + k > sizeof c->head - 1) k = sizeof c->head - 1 - old;
        memcpy(c->head + old, b, k); c->hn += k; c->head[c->hn] = 0;
        char *z = memmem(c->head, c->hn, "\r\n\r\n", 4);
        if (!z) return false;
        size_t hl = z - c->head + 4;
        c->status = atoi(c->head + 9); c->chunked = c->close_after = false; c->until_close = true; c->left = 0;
        for (char *l = strstr(c->head, "\r\n") + 2; l < z + 2; l = strstr(l, "\r\n") + 2) {
            if (!strncasecmp(l, "content-length:", 15)) { c->left = strtoull(l + 15, NULL, 10); c->until_close = false; }
            else if (!strncasecmp(l, "transfer-encoding:", 18)) { c->chunked = true; c->until_close = false; }
            else if (!strncasecmp(l, "connection: close", 17)) c->close_after = true;
        }
        c->in_body = true; c->cs = 0; if (c->chunked) c->left = 0;
        b += hl - old; c->hn = hl;
        if (!c->chunked && !c->until_close && c->left == 0) return true;
    }
    if (c->until_close) { body(c, b, e - b, t); return false; }
    if (!c->chunked) {
        size_t k = e - b; if (k > c->left) k = c->left;
        body(c, b, k, t); c->left -= k; return c->left == 0;
    }
    while (b < e) switch (c->cs) {
        case 0:                              /* size */
            if (*b == '\n') c->cs = c->left ? 2 : 4;
            else if (*b == ';') c->cs = 1;
            else if (*b != '\r') { int d = *b | 32; c->left = c->left * 16 + (d <= '9' ? d - '0' : d - 'a' + 10); }
            b++; break;
        case 1: if (*b++ == '\n') c->cs = c->left ? 2 : 4; break;
        case 2: { size_t k = e - b; if (k > c->left) k = c->left; body(c, b, k, t); b += k; c->left -= k; if (!c->left) c->cs = 3; break; }
        case 3: if (*b++ == '\n') c->cs = 0; break;
        case 4: if (*b == '\n') return true; if (*b != '\r') c->cs = 5; b++; break;
        case 5: if (*b++ == '\n') c->cs = 4; break;
    }
    return false;
}
static void on_read(conn *c) {
    static char buf[1 << 18];
    ssize_t r = recv(c->fd, buf, sizeof buf, 0);
    uint64_t t = now_ns();
    if (r < 0 && errno == EAGAIN) return;
    if (r <= 0) {
        bool active = c->st == WAIT, virgin = !c->in_body && c->hn == 0, fresh = c->fresh;
        hangup(c);
        if (!active) return;
        if (c->in_body && c->until_close && r == 0) { c->close_after = false; done(c, t); return; }
        if (virgin && !fresh) {              /* an idle keep-alive connection was closed under us: retry once */
            reconn++; c->roff = 0; dial(c); return;
        }
        note_error(c, r ? strerror(errno) : "connection closed early");
        usleep(1000); next(c, now_ns()); return;
    }
    if (c->st != WAIT) return;
    cur_read_chunks = 0;
    bool fin = feed(c, buf, r, t);
    if (cur_read_chunks) n_reads++;
    if (fin) { c->fresh = false; done(c, t); }
}
#define NUMBER "0000000000000000000"
static void make_bodies_of_file(void) {
    FILE *f = fopen(body_file, "rb");
    if (!f) { perror(body_file); exit(2); }
    fseek(f, 0, SEEK_END); long jl = ftell(f); rewind(f);
    char *j = malloc(jl); jl = fread(j, 1, jl, f); fclose(f);
    char *at = memmem(j, jl, NUMBER, strlen(NUMBER));
    if (!at) { fprintf(stderr, "%s has no place for a number\n", body_file); exit(2); }
    nbody = 1; bodies = malloc(sizeof *bodies); blen = malloc(sizeof *blen); number_at = malloc(sizeof *number_at);
    number = now_ns();
    char *b = malloc(jl + 10240);
    int bl = sprintf(b, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: llmload\r\nContent-Type: application/json\r\n%sContent-Length: %ld\r\n\r\n", path, port, hdrs, jl);
    memcpy(b + bl, j, jl); bodies[0] = b; blen[0] = bl + jl; number_at[0] = bl + (at - j);
    free(j);
}
static void make_bodies(void) {
    static const char *words[] = { "gateway", "token", "stream", "model", "router", "cache", "prefix", "latency", "request", "upstream",
        "engine", "budget", "retry", "policy", "balance", "quota", "tenant", "session", "decode", "prefill", "batch", "shard", "limit", "queue" };
    if (prompt > 65536) nbody = 16;
    bodies = malloc(nbody * sizeof *bodies); blen = malloc(nbody * sizeof *blen); number_at = malloc(nbody * sizeof *number_at);
    trace_at = malloc(nbody * sizeof *trace_at);
    number = now_ns();                       /* the clock runs faster than requests begin, so no later run repeats one */
    uint64_t s = 88172645463325252ull;
    for (int i = 0; i < nbody; i++) {
        char *p = malloc(prompt + 512), *b = malloc(prompt + 10240); size_t n = 0;
        if (mode == STREAM) n += sprintf(p, "[[mock n=%ld gap_us=%ld ttft_us=%ld]] ", chunks, gap, ttft);
        else if (ttft) n += sprintf(p, "[[mock ttft_us=%ld]] ", ttft);
        size_t tagged = n; n += sprintf(p + n, "%019d ", 0);
        while ((long)n < prompt) { s ^= s << 13; s ^= s >> 7; s ^= s << 17; n += sprintf(p + n, "%s ", words[s % 24]); }
        char *j = malloc(prompt + 2048);
        int jl = sprintf(j, "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},{\"role\":\"user\",\"content\":\"%s\"}],"
            "\"max_tokens\":%ld,\"temperature\":0.7%s}", model, p, chunks, mode == STREAM ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
        int bl = sprintf(b, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: llmload\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", path, port, hdrs, jl);
        if (traced) trace_at[i] = (char *)memmem(b, bl, TRACE_HEAD, strlen(TRACE_HEAD)) - b + strlen(TRACE_HEAD);
        number_at[i] = bl + ((char *)memmem(j, jl, p, n) - j) + tagged;
        memcpy(b + bl, j, jl); bodies[i] = b; blen[i] = bl + jl;
        free(p); free(j);
    }
}
static void show(const char *name, vec *v) {
    qsort(v->v, v->n, 4, cmp32);
    printf(",\"%s\":{\"n\":%zu,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}", name, v->n, pct(v, 50), pct(v, 90), pct(v, 99), pct(v, 99.9), pct(v, 100));
}
int main(int argc, char **argv) {
    int o;
    while ((o = getopt(argc, argv, "P:m:c:r:d:w:b:n:g:t:p:M:H:Tf:")) != -1) switch (o) {
        case 'P': port = atoi(optarg); break;
        case 'm': mode = !strcmp(optarg, "rate") ? RATE : !strcmp(optarg, "stream") ? STREAM : CLOSED; break;
        case 'c': nconn = atoi(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'd': secs = atof(optarg); break;
        case 'w': warm = atof(optarg); break;
        case 'b': prompt = atol(optarg); break;
        case 'n': chunks = atol(optarg); break;
        case 'g': gap = atol(optarg); break;
        case 't': ttft = atol(optarg); break;
        case 'p': path = optarg; break;
        case 'M': model = optarg; break;
        case 'f': body_file = optarg; break;
        case 'T': traced = true; strcat(hdrs, TRACE_HEAD "0000000000000000000-00f067aa0ba902b7-01\r\n"); break;
        case 'H': strncat(hdrs, optarg, sizeof hdrs - strlen(hdrs) - 3); strcat(hdrs, "\r\n"); break;
        default: return 2;
    }
    if (!port) { fprintf(stderr, "need -P port\n"); return 2; }
    signal(SIGPIPE, SIG_IGN); prctl(PR_SET_TIMERSLACK, 1000);
    if (body_file) make_bodies_of_file(); else make_bodies();
    ep = epoll_create1(0);
    cs = calloc(nconn, sizeof *cs);
    for (int i = 0; i < nconn; i++) { cs[i].fd = -1; cs[i].st = IDLE; }
    q_cap = 1 << 20; queue = malloc(q_cap * 8);
    t_begin = now_ns(); t_warm = t_begin + (uint64_t)(warm * 1e9); t_end = t_warm + (uint64_t)(secs * 1e9);
    uint64_t sched = t_begin, step_ns = 0, life = (uint64_t)(chunks * gap + ttft) * 1000;
    int started = 0;
    if (mode == RATE) { step_ns = 1e9 / rate; for (int i = nconn - 1; i >= 0; i--) idle_stack[idle_n++] = i; }
    else if (mode == STREAM && gap) step_ns = life / nconn;      /* spread the starts over one stream's life */
    struct epoll_event ev[512];
    for (;;) {
        uint64_t t = now_ns();
        if (t >= t_end) {
            bool waiting = false;
            for (int i = 0; i < nconn && !waiting; i++) waiting = cs[i].st == WAIT;
            if (!waiting || t >= t_end + 15000000000ull) break;
        } else if (mode == RATE) while (sched <= t) {
            if (idle_n) begin(&cs[idle_stack[--idle_n]], sched + 50000 < t ? t : sched);
            else { queue[q_tail++ % q_cap] = sched; late_q++; }
            sched += step_ns;
        } else while (started < nconn && sched <= t) { begin(&cs[started++], t); sched += step_ns; }
        uint64_t until = t < t_end ? t_end : t + 20000000ull;
        if (t < t_end && (mode == RATE || started < nconn) && sched < until) until = sched;
        t = now_ns();
        struct timespec ts = { 0, 0 };
        if (until > t) { ts.tv_sec = (until - t) / 1000000000ull; ts.tv_nsec = (until - t) % 1000000000ull; }
        int k = epoll_pwait2(ep, ev, 512, &ts, NULL);
        for (int i = 0; i < k; i++) {
            conn *c = ev[i].data.ptr;
            if (c->fd < 0) continue;
            if (ev[i].events & EPOLLOUT) { if (c->st == WAIT) push(c); else arm(c, false); }
            if (c->fd >= 0 && ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_read(c);
        }
    }
    static const char *mn[] = { "closed", "rate", "stream" };
    printf("{\"mode\":\"%s\",\"conns\":%d,\"rate\":%.0f,\"secs\":%.1f,\"prompt\":%ld,\"chunks\":%ld,\"gap_us\":%ld,\"replies\":%lu,\"ok\":%lu,\"err\":%lu,\"reconnects\":%lu,"
        "\"bad_streams\":%lu,\"queued\":%lu,\"started\":%lu,\"rps\":%.1f", mn[mode], nconn, rate, secs, prompt, chunks, gap, replies, ok, err, reconn, bad_stream, late_q, n_started, ok / secs);
    show("lat_us", &lat);
    if (mode == STREAM) {
        printf(",\"chunks_per_s\":%.1f,\"measured_chunks\":%lu,\"measured_reads\":%lu", n_chunks / secs, n_chunks, n_reads);
        show("ttft_us", &ttfts); show("gap_us_seen", &gaps); show("jitter_us", &jit); show("transit_us", &transit);
    }
    printf("}\n");
    return 0;
}
