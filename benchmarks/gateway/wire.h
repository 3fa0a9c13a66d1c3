/* Traffic files, HTTP/1.1 messages and clocks, shared by load.c and upstream.c. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Each conversation has a nonce: 8 hex digits that replace this placeholder wherever it occurs. */
#define PLACEHOLDER "@nonce@@"
#define NONCE 8
/* A marker in texts: "~", kind, nonce, number of the answer in 6 hex digits. */
#define MARKER 16
#define READ_SIZE (256 * 1024)

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void *checked(void *memory) {
    if (!memory) fail("memory");
    return memory;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void set_timer(int fd, uint64_t first_ns, uint64_t interval_ns) {
    struct itimerspec spec = {
        .it_interval = {(time_t)(interval_ns / 1000000000u), (long)(interval_ns % 1000000000u)},
        .it_value = {(time_t)(first_ns / 1000000000u), (long)(first_ns % 1000000000u)},
    };
    if (timerfd_settime(fd, 0, &spec, NULL)) fail("timerfd_settime");
}

/* ---- traffic files: records of a type, a length and the payload */

struct record {
    char type;
    uint32_t length;
    const char *data;
};

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    char *data = checked(malloc(*length + 1));
    if (fread(data, 1, *length, file) != *length) fail(path);
    fclose(file);
    return data;
}

static bool next_record(const char **position, const char *end, struct record *record) {
    if (*position >= end) return false;
    record->type = **position;
    memcpy(&record->length, *position + 1, 4);
    record->data = *position + 5;
    *position += 5 + record->length;
    return true;
}

static uint32_t number_at(const struct record *record, int index) {
    uint32_t number;
    memcpy(&number, record->data + 4 * index, 4);
    return number;
}

/* Bytes with the offsets of their nonces. */
struct text {
    const char *data;
    uint32_t length, slot_count;
    uint32_t *slots;
};

static struct text make_text(const char *data, uint32_t length) {
    struct text text = {data, length, 0, NULL};
    const char *end = data + length, *found = data;
    while ((found = memmem(found, (size_t)(end - found), PLACEHOLDER, NONCE))) {
        text.slots = checked(realloc(text.slots, (text.slot_count + 1) * sizeof *text.slots));
        text.slots[text.slot_count++] = (uint32_t)(found - data);
        found += NONCE;
    }
    return text;
}

static char *put_text(char *to, const struct text *text, const char *nonce) {
    memcpy(to, text->data, text->length);
    for (uint32_t i = 0; i < text->slot_count; i++) memcpy(to + text->slots[i], nonce, NONCE);
    return to + text->length;
}

/* ---- HTTP messages */

enum chunk_state { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

struct message {
    char *data;
    size_t length, capacity;
    size_t head; /* length of the head, 0 until it is complete */
    size_t body; /* decoded length of the body, which starts at `head` */
    size_t parsed; /* position in the encoded bytes */
    long content_length; /* -1: chunked, -2: until the connection ends */
    size_t chunk_left;
    enum chunk_state state;
    bool complete, closes;
};

static void reset_message(struct message *m) {
    m->length = m->head = m->body = m->parsed = 0;
    m->state = CHUNK_SIZE;
    m->complete = m->closes = false;
}

static void parse_head(struct message *m, bool response) {
    char *end = memmem(m->data, m->length, "\r\n\r\n", 4);
    if (!end) return;
    m->head = m->parsed = (size_t)(end - m->data) + 4;
    end[2] = 0;
    char *length = strcasestr(m->data, "\ncontent-length:");
    bool chunked = strcasestr(m->data, "\ntransfer-encoding: chunked") != NULL;
    m->content_length = chunked ? -1 : length ? atol(length + 16) : response ? -2 : 0;
    m->closes = strcasestr(m->data, "\nconnection: close") != NULL;
    end[2] = '\r';
}

static void decode_chunks(struct message *m) {
    while (!m->complete) {
        char *at = m->data + m->parsed;
        size_t available = m->length - m->parsed;
        if (m->state == CHUNK_DATA) {
            size_t count = available < m->chunk_left ? available : m->chunk_left;
            memmove(m->data + m->head + m->body, at, count);
            m->body += count;
            m->parsed += count;
            m->chunk_left -= count;
            if (m->chunk_left) return;
            m->state = CHUNK_END;
            continue;
        }
        char *line_end = available ? memchr(at, '\n', available) : NULL;
        if (!line_end) return;
        m->parsed = (size_t)(line_end - m->data) + 1;
        if (m->state == CHUNK_END) {
            m->state = CHUNK_SIZE;
        } else if (m->state == CHUNK_SIZE) {
            m->chunk_left = strtoul(at, NULL, 16);
            m->state = m->chunk_left ? CHUNK_DATA : TRAILER;
        } else {
            m->complete = line_end - at <= 1;
        }
    }
}

/* Read once. Return false if the connection ended. */
static bool receive(int fd, struct message *m, bool response) {
    if (m->capacity - m->length < READ_SIZE) {
        m->capacity = m->capacity ? 2 * m->capacity : 2 * READ_SIZE;
        m->data = checked(realloc(m->data, m->capacity + 1));
    }
    ssize_t count = recv(fd, m->data + m->length, READ_SIZE, 0);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) {
        m->complete = m->head && m->content_length == -2;
        return m->complete;
    }
    m->length += (size_t)count;
    m->data[m->length] = 0;
    if (!m->head) parse_head(m, response);
    if (!m->head) return true;
    if (m->content_length == -1) {
        decode_chunks(m);
    } else {
        m->body = m->length - m->head;
        m->complete = m->content_length >= 0 && m->body >= (size_t)m->content_length;
    }
    return true;
}

/* Bytes to send. */
struct output {
    char *data;
    size_t length, sent, capacity;
};

static char *reserve(struct output *output, size_t length) {
    if (output->capacity < length) {
        output->capacity = length * 3 / 2;
        output->data = checked(realloc(output->data, output->capacity));
    }
    output->sent = 0;
    output->length = length;
    return output->data;
}

/* Send up to `limit`. Return false if the connection ended. */
static bool flush(int fd, struct output *output, size_t limit) {
    while (output->sent < limit) {
        size_t count = limit - output->sent;
        ssize_t sent = send(fd, output->data + output->sent, count < READ_SIZE ? count : READ_SIZE, MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN || errno == EINTR;
        output->sent += (size_t)sent;
        if ((size_t)sent < count) return true;
    }
    return true;
}

static void set_options(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void watch(int epoll, int fd, void *data, bool writing, bool added) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = data};
    if (epoll_ctl(epoll, added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}
