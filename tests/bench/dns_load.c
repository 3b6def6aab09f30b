// SPDX-License-Identifier: GPL-2.0-or-later
// Asks a name server for n0.bench.example, n1.bench.example, … with a window of questions on their way, and prints how many a second were answered.
// usage: dns_load ADDRESS PORT SECONDS NAMES WINDOW   "QUESTIONS_A_SECOND WRONG LOST"
//        dns_load sink PATH                            reads datagrams at a unix socket for as long as it lives
// Several messages go and come with each system call, so that this takes less of the machine than what it measures.
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#define WINDOW_MAX 256
#define MESSAGE_MAX 1500

static double now(void) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static size_t question(uint16_t id, unsigned name, uint8_t *buf) {
        static const char tail[] = "\5bench\7example\0\0\1\0\1\0\0\51\4\320\0\0\0\0\0\0";
        size_t n = 13;

        memcpy(buf, "\0\0\1\0\0\1\0\0\0\0\0\1", 12);
        buf[0] = (uint8_t) (id >> 8);
        buf[1] = (uint8_t) id;
        n += (size_t) snprintf((char *) buf + n, 16, "n%u", name);
        buf[12] = (uint8_t) (n - 13);
        memcpy(buf + n, tail, sizeof(tail) - 1);
        return n + sizeof(tail) - 1;
}

static int sink(const char *path) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        static char buf[4096];

        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        if (fd < 0 || bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
                return 1;
        for (;;)
                if (recv(fd, buf, sizeof(buf), 0) < 0)
                        return 1;
}

typedef struct Load {
        int fd;
        unsigned names, window, outstanding, next;
        unsigned long answered, wrong, lost;
        uint8_t out[WINDOW_MAX][64], in[WINDOW_MAX][MESSAGE_MAX];
        struct iovec out_vec[WINDOW_MAX], in_vec[WINDOW_MAX];
        struct mmsghdr out_msg[WINDOW_MAX], in_msg[WINDOW_MAX];
} Load;

static void load_send(Load *l) {
        unsigned n = l->window - l->outstanding;
        int sent;

        for (unsigned i = 0; i < n; i++, l->next++) {
                l->out_vec[i] = (struct iovec) {l->out[i], question((uint16_t) l->next, l->next % l->names, l->out[i])};
                l->out_msg[i].msg_hdr = (struct msghdr) {.msg_iov = &l->out_vec[i], .msg_iovlen = 1};
        }
        sent = n > 0 ? sendmmsg(l->fd, l->out_msg, n, 0) : 0;
        if (sent > 0)
                l->outstanding += (unsigned) sent;
}

static void load_receive(Load *l) {
        int n;

        for (unsigned i = 0; i < l->window; i++) {
                l->in_vec[i] = (struct iovec) {l->in[i], MESSAGE_MAX};
                l->in_msg[i].msg_hdr = (struct msghdr) {.msg_iov = &l->in_vec[i], .msg_iovlen = 1};
        }
        n = recvmmsg(l->fd, l->in_msg, l->window, MSG_WAITFORONE, NULL);
        if (n <= 0) { // the socket's own timeout: what is outstanding was lost
                l->lost += l->outstanding;
                l->outstanding = 0;
                return;
        }
        for (int i = 0; i < n; i++) {
                l->answered++;
                l->wrong += l->in_msg[i].msg_len < 12 || (l->in[i][3] & 0xf) != 0 || l->in[i][7] == 0;
        }
        l->outstanding -= (unsigned) n < l->outstanding ? (unsigned) n : l->outstanding;
}

int main(int argc, char **argv) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        static Load l;
        double start, seconds;

        if (argc == 3 && strcmp(argv[1], "sink") == 0)
                return sink(argv[2]);
        if (argc != 6 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
                return 2;
        address.sin_port = htons((uint16_t) strtoul(argv[2], NULL, 10));
        seconds = strtod(argv[3], NULL);
        l.names = (unsigned) strtoul(argv[4], NULL, 10);
        l.window = (unsigned) strtoul(argv[5], NULL, 10);
        l.fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (l.names == 0 || l.window == 0 || l.window > WINDOW_MAX || l.fd < 0 || connect(l.fd, (struct sockaddr *) &address, sizeof(address)) < 0 ||
            setsockopt(l.fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval) {.tv_usec = 200000}, sizeof(struct timeval)) < 0)
                return 2;
        for (start = now(); now() - start < seconds;) {
                load_send(&l);
                load_receive(&l);
        }
        printf("%.0f %lu %lu\n", (double) l.answered / (now() - start), l.wrong, l.lost);
        return 0;
}
