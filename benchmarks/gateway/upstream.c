/* The upstream of all programs: prepared answers, and an error for requests that lost, mixed up or reordered anything.

   upstream PORT ANSWERS INTERVAL_MS

   The marker of the last user message selects the answer. Kinds of markers: "u" in each user message, "a" in what the
   model wrote, "t" in each tool. GET / returns the number of unfinished streams, GET /last a recent request body, GET /v1/models the list of models
   that some gateways read first. */

#include "wire.h"

enum mode { AT_ONCE, PACED, STALLED };

struct answer {
    struct text response;
    enum mode mode;
    uint32_t first; /* answer to the first request of the same conversation */
    uint32_t tools, markers;
    char agent[NONCE + 1]; /* in the markers of its tools */
    uint32_t *ends; /* of the pieces that a paced stream is sent in */
    uint32_t piece_count;
};

struct scan {
    size_t position;
    char nonce[NONCE], agent[NONCE];
    uint32_t first, last, tools, markers; /* `markers` of what the model wrote since the last user message */
    bool begun;
    const char *error;
};

struct connection {
    int fd;
    bool writing, unfinished;
    struct message in;
    struct output out;
    struct scan scan;
    const struct answer *answer;
    uint32_t piece;
    uint64_t due;
};

static struct answer *answers;
static uint32_t answer_count;
static int epoll_fd, timer_fd;
static struct connection *paced[65536];
static int paced_count, unfinished_count;
static uint64_t interval_ns;
static struct message last_request;

/* ---- answers */

static void add_piece(struct answer *answer, uint32_t end) {
    answer->ends = checked(realloc(answer->ends, (answer->piece_count + 1) * sizeof *answer->ends));
    answer->ends[answer->piece_count++] = end;
}

/* Split at chunks; the first piece ends with the first chunk that has text. */
static void split(struct answer *answer) {
    const char *data = answer->response.data;
    uint32_t position = (uint32_t)((char *)memmem(data, answer->response.length, "\r\n\r\n", 4) - data) + 4;
    bool text = false;
    while (position < answer->response.length) {
        char *end;
        uint32_t size = (uint32_t)strtoul(data + position, &end, 16);
        uint32_t next = (uint32_t)(end - data) + 2 + size + 2;
        text = text || memmem(data + position, next - position, "~a", 2);
        if (text) add_piece(answer, next);
        position = next;
    }
}

static void load_answers(const char *path) {
    size_t length;
    const char *position = read_file(path, &length), *end = position + length;
    struct record record;
    while (next_record(&position, end, &record)) {
        if (answer_count % 1024 == 0) answers = checked(realloc(answers, (answer_count + 1024) * sizeof *answers));
        struct answer *answer = &answers[answer_count++];
        *answer = (struct answer){
            .response = make_text(record.data + 20, record.length - 20),
            .mode = (enum mode)number_at(&record, 0),
            .first = number_at(&record, 1),
            .tools = number_at(&record, 2),
            .markers = number_at(&record, 3),
        };
        snprintf(answer->agent, sizeof answer->agent, "%08x", number_at(&record, 4));
        if (answer->mode != AT_ONCE) split(answer);
    }
}

/* ---- requests */

static bool read_number(const char *digits, uint32_t *number) {
    *number = 0;
    for (int i = 0; i < 6; i++) {
        char c = digits[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) return false;
        *number = *number * 16 + (uint32_t)value;
    }
    return true;
}

static void read_marker(struct scan *scan, const char *marker) {
    char kind = marker[1];
    uint32_t number;
    if (!read_number(marker + 2 + NONCE, &number)) {
        scan->error = "a marker is damaged";
    } else if (kind == 't') {
        if (!scan->tools) memcpy(scan->agent, marker + 2, NONCE);
        if (number != scan->tools++) scan->error = "a tool was lost or moved";
        else if (memcmp(scan->agent, marker + 2, NONCE)) scan->error = "tools of agents were mixed up";
    } else if (number >= answer_count) {
        scan->error = "unknown answer";
    } else if (kind == 'a') {
        scan->markers++;
        if (!scan->begun || number != scan->last) scan->error = "an assistant message was moved";
    } else if (!scan->begun) {
        scan->begun = true;
        scan->first = scan->last = number;
        memcpy(scan->nonce, marker + 2, NONCE);
        if (answers[number].first != number) scan->error = "the first user message was lost";
    } else {
        if (number != scan->last + 1) scan->error = "a user message was lost or moved";
        else if (scan->markers != answers[scan->last].markers) scan->error = "a part of an assistant message was lost";
        scan->last = number;
        scan->markers = 0;
    }
    if (kind != 't' && memcmp(scan->nonce, marker + 2, NONCE)) scan->error = "conversations were mixed up";
}

/* Read markers as far as they have arrived, so that a large body does not delay other connections. */
static void advance(struct connection *c) {
    struct scan *scan = &c->scan;
    const char *body = c->in.data + c->in.head;
    while (!scan->error && scan->position < c->in.body) {
        const char *found = memchr(body + scan->position, '~', c->in.body - scan->position);
        scan->position = found ? (size_t)(found - body) : c->in.body;
        if (!found || scan->position + MARKER > c->in.body) return;
        read_marker(scan, found);
        scan->position += MARKER;
    }
}

static const char *find_error(const struct scan *scan) {
    if (scan->error) return scan->error;
    if (!scan->begun) return "no user message";
    if (scan->markers) return "the last user message was lost";
    if (answers[scan->last].first != scan->first) return "the beginning of the conversation was lost";
    if (answers[scan->last].tools != scan->tools) return "tools were lost";
    if (scan->tools && memcmp(scan->agent, answers[scan->last].agent, NONCE)) return "tools of another agent";
    return NULL;
}

/* ---- responses */

static void respond(struct connection *c, int status, const char *body, size_t length) {
    char head[128];
    int count = snprintf(head, sizeof head, "HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
                         status, length);
    char *to = reserve(&c->out, (size_t)count + length);
    memcpy(to, head, (size_t)count);
    memcpy(to + count, body, length);
}

static size_t limit_of(const struct connection *c) {
    return c->answer && c->answer->mode != AT_ONCE ? c->answer->ends[c->piece] : c->out.length;
}

static void set_unfinished(struct connection *c, bool unfinished) {
    unfinished_count += unfinished - c->unfinished;
    c->unfinished = unfinished;
}

static void drop_paced(struct connection *c) {
    for (int i = 0; i < paced_count; i++)
        if (paced[i] == c) paced[i] = paced[--paced_count];
}

static void drop(struct connection *c) {
    set_unfinished(c, false);
    drop_paced(c);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static bool write_out(struct connection *c) {
    size_t limit = limit_of(c);
    if (!flush(c->fd, &c->out, limit)) return false;
    bool writing = c->out.sent < limit;
    if (writing != c->writing) watch(epoll_fd, c->fd, c, writing, true);
    c->writing = writing;
    if (c->out.sent == c->out.length) set_unfinished(c, false);
    return true;
}

static void answer_query(struct connection *c) {
    static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"owned_by\":\"bench\"}]}";
    char count[16];
    if (!strncmp(c->in.data, "GET /last", 9) && last_request.data)
        respond(c, 200, last_request.data + last_request.head, last_request.body);
    else if (!strncmp(c->in.data, "GET /v1/models", 14))
        respond(c, 200, models, sizeof models - 1);
    else
        respond(c, 200, count, (size_t)snprintf(count, sizeof count, "%d", unfinished_count));
}

static void answer_request(struct connection *c) {
    static unsigned served;
    c->answer = NULL;
    if (c->in.data[0] == 'G') {
        answer_query(c);
        return;
    }
    const char *error = find_error(&c->scan);
    if (error) {
        char body[200];
        int length = snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"code\":null,\"param\":null}}", error);
        respond(c, 400, body, (size_t)length);
        return;
    }
    c->answer = &answers[c->scan.last];
    put_text(reserve(&c->out, c->answer->response.length), &c->answer->response, c->scan.nonce);
    if (c->answer->mode != AT_ONCE) {
        c->piece = 0;
        c->due = now_ns() + interval_ns;
        set_unfinished(c, true);
        if (c->answer->mode == PACED) paced[paced_count++] = c;
        if (paced_count == 1) set_timer(timer_fd, 1000000, 1000000);
    }
    if (++served % 16 == 0) {
        struct message request = c->in;
        c->in = last_request;
        last_request = request;
    }
}

static bool read_in(struct connection *c) {
    if (!receive(c->fd, &c->in, false)) return false;
    if (c->in.head) advance(c);
    if (!c->in.complete) return true;
    answer_request(c);
    reset_message(&c->in);
    memset(&c->scan, 0, sizeof c->scan);
    return write_out(c);
}

static void send_due(void) {
    uint64_t now = now_ns(), expirations;
    if (read(timer_fd, &expirations, sizeof expirations) < 0) return;
    for (int i = paced_count - 1; i >= 0; i--) {
        struct connection *c = paced[i];
        if (c->due > now) continue;
        c->due += interval_ns;
        bool last = ++c->piece == c->answer->piece_count - 1;
        if (last) drop_paced(c);
        if (!write_out(c)) drop(c);
    }
    if (!paced_count) set_timer(timer_fd, 0, 0);
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) fail("listen");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void accept_all(int listener) {
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        set_options(fd);
        struct connection *c = checked(calloc(1, sizeof *c));
        c->fd = fd;
        watch(epoll_fd, fd, c, false, false);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    load_answers(argv[2]);
    interval_ns = (uint64_t)atol(argv[3]) * 1000000u;
    epoll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int listener = listen_on(atoi(argv[1]));
    watch(epoll_fd, listener, &listener, false, false);
    watch(epoll_fd, timer_fd, &timer_fd, false, false);
    struct epoll_event events[256];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, 256, -1);
        bool timer = false;
        for (int i = 0; i < count; i++) {
            void *data = events[i].data.ptr;
            if (data == &listener) accept_all(listener);
            else if (data == &timer_fd) timer = true;
            else {
                struct connection *c = data;
                bool alive = (events[i].events & ~(uint32_t)EPOLLOUT) ? read_in(c) : write_out(c);
                if (!alive) drop(c);
            }
        }
        if (timer) send_due(); /* last, since it may drop connections */
    }
}
