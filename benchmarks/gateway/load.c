/* Load generator: requests composed from a traffic file, every response checked.

   load TRAFFIC SAMPLES SEED

   Each line on stdin is an order, each line on stdout its outcome as JSON:
     MODE PEER PORT WORKLOAD COUNT CONNECTIONS SECONDS INTERVAL_US HEAVY PID
   PID is the measured process (0: none). Its CPU time between a request and its response is reported beside the elapsed
   time: what the program itself did meanwhile, without what other programs did on its core.

   run      COUNT exchanges, one after the other on each connection
   leave    the same, but each client disconnects at the first token
   hold     CONNECTIONS more streams, held open after their first token until "release"
   streams  CONNECTIONS concurrent streams for SECONDS, longer if COUNT more have not begun; times to the first token
   probe    one exchange every INTERVAL_US for SECONDS, while another client sends HEAVY ("-": nothing)
   "header PEER LINE" adds a header to the requests of a peer. */

#include "wire.h"

#define PEERS 16
#define STALL_NS 120000000000u

struct part {
    struct text plain, cached; /* `cached` has cache_control */
};

struct turn {
    uint32_t part, answer, markers; /* the last part, the expected answer, and the number of markers in it */
};

struct conversation {
    uint32_t turn;
    char nonce[NONCE + 1];
    bool begun, busy;
};

struct agent {
    struct text head, tail;
    struct part *parts;
    struct turn *turns;
    uint32_t part_count, turn_count, first;
    struct conversation of_peer[PEERS];
};

struct workload {
    char name[32], path[64];
    bool grows, streamed;
    struct agent *agents;
    uint32_t agent_count;
    uint64_t random[PEERS];
};

enum role { ORDINARY, HEAVY };

struct client {
    int fd;
    bool busy, writing, begun, token; /* `begun`: text of the answer has arrived */
    enum role role;
    struct workload *workload;
    struct agent *agent;
    const struct turn *turn;
    char nonce[NONCE + 1];
    struct message in;
    struct output out;
    size_t scanned;
    uint32_t markers;
    uint64_t start, cpu_start;
};

struct order {
    char mode[16], workload_name[32], heavy_name[32];
    unsigned peer, port, count, connections, interval_us;
    int pid;
    double seconds;
    struct workload *workload, *heavy;
};

struct times {
    uint64_t *values;
    size_t count;
};

struct outcome {
    unsigned good, bad, heavy;
    char error[400];
    struct times latency, first_token, cpu, first_token_cpu;
};

static struct workload workloads[64];
static unsigned workload_count;
static char headers[PEERS][512];
static uint64_t seed, nonce_count;
static int epoll_fd, timer_fd;
static struct client *clients[8192];
static unsigned client_count, busy_count, started;
static struct order order;
static struct outcome outcome;
static uint64_t begin, last_progress;
static const char *samples_path;
static FILE *samples;
static clockid_t cpu_clock;

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_random(uint64_t *state) { return mix(*state += 0x9e3779b97f4a7c15u); }

static bool is_mode(const char *mode) { return !strcmp(order.mode, mode); }

/* CPU time of the measured process, to the nanosecond. */
static uint64_t cpu_ns(void) {
    struct timespec t;
    if (!order.pid || clock_gettime(cpu_clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- traffic */

static struct part *add_part(struct agent *agent) {
    agent->parts = checked(realloc(agent->parts, (agent->part_count + 1) * sizeof *agent->parts));
    return &agent->parts[agent->part_count++];
}

static void load_traffic(const char *path) {
    size_t length;
    const char *position = read_file(path, &length), *end = position + length;
    struct record record;
    struct workload *workload = NULL;
    struct agent *agent = NULL;
    while (next_record(&position, end, &record)) {
        switch (record.type) {
        case 'W':
            workload = &workloads[workload_count++];
            snprintf(workload->name, sizeof workload->name, "%.*s", (int)record.length, record.data);
            for (int i = 0; i < PEERS; i++) workload->random[i] = mix(seed + workload_count);
            break;
        case 'P': snprintf(workload->path, sizeof workload->path, "%.*s", (int)record.length, record.data); break;
        case 'F':
            workload->grows = number_at(&record, 0);
            workload->streamed = number_at(&record, 1);
            break;
        case 'A':
            workload->agents = checked(realloc(workload->agents, (workload->agent_count + 1) * sizeof *workload->agents));
            agent = &workload->agents[workload->agent_count++];
            memset(agent, 0, sizeof *agent);
            agent->first = number_at(&record, 0);
            break;
        case 'H': agent->head = make_text(record.data, record.length); break;
        case 'T': agent->tail = make_text(record.data, record.length); break;
        case 'M': {
            struct part *part = add_part(agent);
            part->plain = part->cached = make_text(record.data, record.length);
            break;
        }
        case 'C': agent->parts[agent->part_count - 1].cached = make_text(record.data, record.length); break;
        case 'X':
            agent->turns = checked(realloc(agent->turns, (agent->turn_count + 1) * sizeof *agent->turns));
            agent->turns[agent->turn_count++] =
                (struct turn){agent->part_count - 1, number_at(&record, 0), number_at(&record, 1)};
            break;
        }
    }
}

static struct workload *find_workload(const char *name) {
    for (unsigned i = 0; i < workload_count; i++)
        if (!strcmp(workloads[i].name, name)) return &workloads[i];
    return NULL;
}

/* ---- requests */

static void begin_conversation(struct conversation *conversation, uint32_t turn) {
    conversation->turn = turn;
    conversation->begun = true;
    snprintf(conversation->nonce, sizeof conversation->nonce, "%08x", (uint32_t)mix(seed ^ ++nonce_count));
}

/* Choose the agent of the next request. Conversations are first met at any turn, as they are after running for long. */
static void choose_agent(struct client *c) {
    struct workload *workload = c->workload;
    uint64_t *random = &workload->random[order.peer];
    struct agent *agent;
    struct conversation *conversation;
    do {
        agent = &workload->agents[next_random(random) % workload->agent_count];
        conversation = &agent->of_peer[order.peer];
    } while (workload->grows && conversation->busy);
    uint32_t turns = agent->turn_count - agent->first;
    if (!workload->grows) begin_conversation(conversation, agent->first);
    else if (!conversation->begun) begin_conversation(conversation, agent->first + (uint32_t)(next_random(random) % turns));
    conversation->busy = true;
    c->agent = agent;
    c->turn = &agent->turns[conversation->turn];
    memcpy(c->nonce, conversation->nonce, sizeof c->nonce);
}

/* Clients of Anthropic mark the last two user messages for the provider's cache. */
static const struct text *text_of(const struct client *c, uint32_t index) {
    const struct part *part = &c->agent->parts[index];
    bool cached = index == c->turn->part || (c->turn > c->agent->turns && index == c->turn[-1].part);
    return cached ? &part->cached : &part->plain;
}

static void compose(struct client *c) {
    size_t length = c->agent->head.length + c->agent->tail.length + c->turn->part;
    for (uint32_t i = 0; i <= c->turn->part; i++) length += text_of(c, i)->length;
    char head[1024];
    int head_length = snprintf(
        head, sizeof head,
        "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%u\r\ncontent-type: application/json\r\nuser-agent: bench\r\naccept: */*\r\n"
        "%s%scontent-length: %zu\r\n\r\n",
        c->workload->path, order.port, headers[order.peer],
        strstr(c->workload->path, "messages") ? "anthropic-version: 2023-06-01\r\n" : "", length);
    char *to = reserve(&c->out, (size_t)head_length + length);
    memcpy(to, head, (size_t)head_length);
    to = put_text(to + head_length, &c->agent->head, c->nonce);
    for (uint32_t i = 0; i <= c->turn->part; i++) {
        if (i) *to++ = ',';
        to = put_text(to, text_of(c, i), c->nonce);
    }
    put_text(to, &c->agent->tail, c->nonce);
}

/* ---- connections */

static void fail_request(struct client *c, const char *reason) {
    if (!outcome.bad++) {
        size_t count = c->in.length < 300 ? c->in.length : 300;
        int used = snprintf(outcome.error, sizeof outcome.error, "%s: ", reason);
        for (size_t i = 0; i < count && used < (int)sizeof outcome.error - 1; i++) {
            unsigned char byte = (unsigned char)c->in.data[i];
            outcome.error[used++] = byte < 32 || byte > 126 || byte == '"' || byte == '\\' ? ' ' : (char)byte;
        }
        outcome.error[used] = 0;
    }
}

static void disconnect(struct client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->writing = false;
}

static bool connect_client(struct client *c) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)order.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) {
        disconnect(c);
        return false;
    }
    set_options(c->fd);
    watch(epoll_fd, c->fd, c, false, false);
    return true;
}

static struct client *add_client(struct workload *workload, enum role role) {
    struct client *c = checked(calloc(1, sizeof *c));
    *c = (struct client){.fd = -1, .role = role, .workload = workload};
    clients[client_count++] = c;
    return c;
}

static void drop_clients(void) {
    for (unsigned i = 0; i < client_count; i++) {
        if (clients[i]->agent) clients[i]->agent->of_peer[order.peer].busy = false;
        disconnect(clients[i]);
        free(clients[i]->in.data);
        free(clients[i]->out.data);
        free(clients[i]);
    }
    client_count = busy_count = 0;
}

/* ---- exchanges */

static void end_exchange(struct client *c, bool good);

static void write_out(struct client *c) {
    if (!flush(c->fd, &c->out, c->out.length)) {
        fail_request(c, "the connection ended while sending");
        end_exchange(c, false);
        return;
    }
    bool writing = c->out.sent < c->out.length;
    if (writing != c->writing) watch(epoll_fd, c->fd, c, writing, true);
    c->writing = writing;
}

static void start_exchange(struct client *c, uint64_t start) {
    if (c->role == ORDINARY) started++;
    choose_agent(c);
    compose(c);
    reset_message(&c->in);
    c->scanned = c->markers = 0;
    c->token = c->begun = false;
    c->busy = true;
    busy_count++;
    c->start = start;
    c->cpu_start = cpu_ns();
    if (c->fd < 0 && !connect_client(c)) {
        fail_request(c, "no connection");
        end_exchange(c, false);
        return;
    }
    write_out(c);
}

/* Count the markers of this answer in part of a text; a marker of another one never counts. */
static size_t count_markers(struct client *c, const char *text, size_t from, size_t length) {
    char expected[MARKER + 1];
    snprintf(expected, sizeof expected, "~a%s%06x", c->nonce, c->turn->answer);
    while (from < length) {
        const char *found = memchr(text + from, '~', length - from);
        from = found ? (size_t)(found - text) : length;
        if (!found || from + MARKER > length) return from;
        c->begun = c->begun || !memcmp(found, expected, 2 + NONCE);
        c->markers += !memcmp(found, expected, MARKER);
        from += MARKER;
    }
    return from;
}

/* Count again in the joined deltas of a stream: a gateway that looks for calls in the text moves their boundaries. */
static void scan_deltas(struct client *c) {
    static const char *const keys[] = {"\"text\":\"", "\"content\":\"", "\"partial_json\":\"", "\"arguments\":\""};
    const char *position = c->in.data + c->in.head, *end = position + c->in.body;
    char *joined = checked(malloc(c->in.body + 1)), *to = joined;
    while (position < end && (position = memchr(position, '"', (size_t)(end - position)))) {
        size_t key = 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys && !key; i++)
            if (!strncmp(position, keys[i], strlen(keys[i]))) key = strlen(keys[i]);
        position += key ? key : 1;
        while (key && position < end && *position != '"') {
            if (*position == '\\') *to++ = *position++;
            *to++ = *position++;
        }
        position += key != 0;
    }
    c->markers = 0;
    count_markers(c, joined, 0, (size_t)(to - joined));
    free(joined);
}

/* Gateways may send comments after the last event. */
static bool has_end(const char *body, size_t length) {
    for (size_t tail = 400;; tail *= 16) {
        if (tail > length) tail = length;
        const char *from = body + length - tail;
        if (memmem(from, tail, "message_stop", 12) || memmem(from, tail, "[DONE]", 6)) return true;
        if (tail == length) return false;
    }
}

static const char *find_error(const struct client *c) {
    const char *body = c->in.data + c->in.head;
    if (strncmp(c->in.data + 8, " 200", 4)) return "status";
    if (c->markers != c->turn->markers) return "not the answer to this request";
    if (c->workload->streamed && !has_end(body, c->in.body)) return "the stream has no end";
    return NULL;
}

static void keep_sample(const struct client *c) {
    uint32_t length = (uint32_t)c->in.body;
    unsigned every = order.count / 6 + 1;
    if (!samples || outcome.good % every) return;
    fwrite(&c->turn->answer, 4, 1, samples);
    fwrite(c->nonce, NONCE, 1, samples);
    fwrite(&length, 4, 1, samples);
    fwrite(c->in.data + c->in.head, 1, length, samples);
}

static void record_time(struct times *times, uint64_t value) {
    if (times->count % 4096 == 0)
        times->values = checked(realloc(times->values, (times->count + 4096) * sizeof *times->values));
    times->values[times->count++] = value;
}

static void end_exchange(struct client *c, bool good) {
    struct conversation *conversation = &c->agent->of_peer[order.peer];
    conversation->busy = false;
    c->busy = false;
    busy_count--;
    last_progress = now_ns();
    if (!good || c->in.closes || c->in.content_length == -2) disconnect(c);
    if (good && c->role == HEAVY) outcome.heavy++;
    else if (good) {
        keep_sample(c);
        outcome.good++;
        record_time(&outcome.latency, now_ns() - c->start);
        record_time(&outcome.cpu, cpu_ns() - c->cpu_start);
    }
    if (c->workload->grows) {
        if (good && conversation->turn + 1 < c->agent->turn_count) conversation->turn++;
        else begin_conversation(conversation, c->agent->first);
    }
}

static void take_token(struct client *c) {
    c->token = true;
    last_progress = now_ns();
    if (!is_mode("streams") || started > order.connections) {
        record_time(&outcome.first_token, now_ns() - c->start);
        record_time(&outcome.first_token_cpu, cpu_ns() - c->cpu_start);
    }
    if (is_mode("leave")) {
        disconnect(c);
        end_exchange(c, true);
    }
}

static void read_in(struct client *c) {
    if (!c->busy) { /* the server ended an idle connection */
        disconnect(c);
        return;
    }
    if (!receive(c->fd, &c->in, true)) {
        fail_request(c, "the connection ended");
        end_exchange(c, false);
        return;
    }
    if (c->in.head) c->scanned = count_markers(c, c->in.data + c->in.head, c->scanned, c->in.body);
    if (!c->token && c->begun) {
        take_token(c);
        if (!c->busy) return;
    }
    if (!c->in.complete) return;
    if (c->workload->streamed && c->markers != c->turn->markers) scan_deltas(c);
    const char *error = find_error(c);
    if (error) fail_request(c, error);
    end_exchange(c, !error);
}

/* ---- orders */

/* Ticks of the timer since the order began. */
static uint64_t ticks;

/* Whether a probe starts at this tick: the order lasts SECONDS, however late the ticks are read. */
static bool is_due(uint64_t tick) {
    return (double)(tick * order.interval_us * 1000ull) / 1e9 < order.seconds;
}

static bool is_over(void) {
    double elapsed = (double)(now_ns() - begin) / 1e9;
    if (outcome.bad > 20) return true;
    if (is_mode("hold")) return outcome.first_token.count >= order.connections;
    if (is_mode("streams")) return elapsed >= order.seconds && outcome.first_token.count >= order.count;
    if (is_mode("probe"))
        return elapsed >= order.seconds && !is_due(ticks + 1) && (!order.heavy || outcome.heavy >= 2) &&
               busy_count <= (order.heavy != NULL);
    return started >= order.count && !busy_count;
}

static bool may_start(const struct client *c) {
    if (c->busy) return false;
    if (c->role == HEAVY) return true;
    if (is_mode("hold")) return !c->agent;
    if (is_mode("streams")) return c->agent || started < order.connections;
    if (is_mode("probe")) return false;
    return started < order.count;
}

static void start_probe(uint64_t start) {
    for (unsigned i = 0; i < client_count; i++)
        if (!clients[i]->busy && clients[i]->role == ORDINARY) {
            start_exchange(clients[i], start);
            return;
        }
    if (client_count < 2048) start_exchange(add_client(order.workload, ORDINARY), start);
}

/* Start what is due: a probe starts at its time even if earlier ones have no answer yet. */
static void take_tick(void) {
    uint64_t expirations, interval = order.interval_us * 1000ull;
    if (read(timer_fd, &expirations, sizeof expirations) < 0) return;
    for (; expirations; expirations--) {
        ticks++;
        if (is_mode("probe")) {
            if (is_due(ticks)) start_probe(begin + ticks * interval);
        } else if (started < order.connections) {
            for (unsigned i = 0; i < client_count; i++)
                if (!clients[i]->agent) {
                    start_exchange(clients[i], now_ns());
                    break;
                }
        }
    }
}

static void handle(const struct epoll_event *event) {
    if (event->data.ptr == &timer_fd) {
        take_tick();
        return;
    }
    struct client *c = event->data.ptr;
    if (event->events & ~(uint32_t)EPOLLOUT) read_in(c);
    else write_out(c);
    if (!is_mode("hold") && may_start(c) && !is_over()) start_exchange(c, now_ns());
}

static void run_order(void) {
    unsigned before = client_count;
    bool ticking = is_mode("probe") || is_mode("streams");
    begin = last_progress = now_ns();
    started = 0;
    ticks = 0;
    unsigned initial = is_mode("probe") ? 0 : order.connections;
    for (unsigned i = 0; i < initial; i++) add_client(order.workload, ORDINARY);
    if (ticking) set_timer(timer_fd, order.interval_us * 1000ull, order.interval_us * 1000ull);
    if (order.heavy) start_exchange(add_client(order.heavy, HEAVY), now_ns());
    for (unsigned i = before; !ticking && i < client_count; i++)
        if (may_start(clients[i])) start_exchange(clients[i], now_ns());
    struct epoll_event events[256];
    while (!is_over()) {
        int count = epoll_wait(epoll_fd, events, 256, 1000);
        for (int i = 0; i < count; i++) handle(&events[i]);
        for (unsigned i = before; !count && !ticking && i < client_count; i++) /* those that had no connection */
            if (may_start(clients[i])) start_exchange(clients[i], now_ns());
        if (now_ns() - last_progress > STALL_NS) {
            snprintf(outcome.error, sizeof outcome.error, "no progress");
            outcome.bad++;
            break;
        }
    }
    set_timer(timer_fd, 0, 0);
    if (!is_mode("hold")) drop_clients();
}

static int compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Print percentiles in milliseconds. */
static void print_times(const char *name, struct times *times) {
    uint64_t zero = 0, *sorted = times->count ? times->values : &zero;
    size_t last = times->count ? times->count - 1 : 0;
    qsort(sorted, last + 1, sizeof *sorted, compare);
    printf(",\"%s\":{\"count\":%zu,\"p50\":%.4f,\"p99\":%.4f,\"most\":%.4f}", name, times->count, (double)sorted[last / 2] / 1e6,
           (double)sorted[last * 99 / 100] / 1e6, (double)sorted[last] / 1e6);
}

static void print_outcome(void) {
    printf("{\"good\":%u,\"bad\":%u,\"heavy\":%u,\"error\":\"%s\",\"seconds\":%.6f", outcome.good, outcome.bad,
           outcome.heavy, outcome.error, (double)(now_ns() - begin) / 1e9);
    print_times("latency_ms", &outcome.latency);
    print_times("cpu_ms", &outcome.cpu);
    print_times("first_token_ms", &outcome.first_token);
    print_times("first_token_cpu_ms", &outcome.first_token_cpu);
    puts("}");
    fflush(stdout);
}

static void take_line(const char *line) {
    unsigned peer;
    int text;
    if (sscanf(line, "header %u %n", &peer, &text) == 1 && peer < PEERS) {
        size_t used = strlen(headers[peer]);
        snprintf(headers[peer] + used, sizeof headers[peer] - used, "%.*s\r\n", (int)strcspn(line + text, "\n"), line + text);
        return;
    }
    begin = now_ns();
    free(outcome.latency.values);
    free(outcome.cpu.values);
    free(outcome.first_token.values);
    free(outcome.first_token_cpu.values);
    memset(&outcome, 0, sizeof outcome);
    if (!strncmp(line, "release", 7)) {
        drop_clients();
        print_outcome();
        return;
    }
    if (sscanf(line, "%15s %u %u %31s %u %u %lf %u %31s %d", order.mode, &order.peer, &order.port, order.workload_name,
               &order.count, &order.connections, &order.seconds, &order.interval_us, order.heavy_name, &order.pid) != 10 ||
        order.peer >= PEERS || !(order.workload = find_workload(order.workload_name))) {
        fprintf(stderr, "invalid order: %s", line);
        exit(2);
    }
    order.heavy = find_workload(order.heavy_name);
    if (order.pid && clock_getcpuclockid(order.pid, &cpu_clock)) fail("clock_getcpuclockid");
    samples = is_mode("run") ? fopen(samples_path, "wb") : NULL;
    run_order();
    if (samples) fclose(samples);
    samples = NULL;
    print_outcome();
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    seed = strtoull(argv[3], NULL, 10);
    samples_path = argv[2];
    load_traffic(argv[1]);
    epoll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    watch(epoll_fd, timer_fd, &timer_fd, false, false);
    char line[1024];
    while (fgets(line, sizeof line, stdin)) take_line(line);
    return 0;
}
