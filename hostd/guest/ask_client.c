// SPDX-License-Identifier: GPL-2.0-or-later
// hostd-guest as a command inside an instance: "ask net HOST:PORT --reason TEXT". Exit status: 0 approved, or asked and not waited for; 1 refused or
// denied; 2 wrong words; 3 nobody has answered in the time.
#include "guest/ask.h"

#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/valid.h"

#define ANSWER_WITHIN 15000 // ms: to the request itself; an operator takes longer
#define WAIT_MAX 86400
enum { EXIT_NOT = 1, EXIT_USAGE = 2, EXIT_PENDING = 3 };

typedef struct AskWords {
        GuestAsk ask;
        unsigned long wait; // seconds
} AskWords;

static int usage(void) {
        fputs("usage: hostd-guest ask net HOST[:PORT] [--protocol tcp|udp] --reason TEXT [--wait SECONDS]\n"
              "       hostd-guest ask status NUMBER [--wait SECONDS]\n"
              "Asks the operators of this instance to let it reach a host, a \"*.suffix\", an address or a network; port 443 if there is none.\n",
              stderr);
        return -EINVAL;
}

static int complain(const char *what) {
        fprintf(stderr, "hostd-guest: %s\n", what);
        return -EINVAL;
}

// "host", "host:port", "[address]:port", "10.0.0.0/24:22", "[2001:db8::]/32:22" without brackets around a port's colon is no IPv6.
static int split(const char *text, GuestAsk *ask) {
        const char *colon = strrchr(text, ':'), *bracket = *text == '[' ? strchr(text, ']') : NULL;
        unsigned long port = 443;
        size_t n = strlen(text);
        char *end;

        if (!bracket && colon && strchr(text, ':') != colon) // an IPv6 address by itself
                colon = NULL;
        if (bracket && colon && colon < bracket)
                colon = NULL;
        if (colon) {
                port = strtoul(colon + 1, &end, 10);
                if (colon[1] < '0' || colon[1] > '9' || *end || port < 1 || port > UINT16_MAX)
                        return complain("the port must be a number from 1 to 65535");
                n = (size_t) (colon - text);
        }
        if (n >= sizeof(ask->to))
                return complain("the host is too long");
        (void) snprintf(ask->to, sizeof(ask->to), "%.*s", (int) n, text);
        if (bracket) { // "[2001:db8::]/32" or "[2001:db8::1]"
                size_t k = (size_t) (bracket - text);
                memmove(ask->to, ask->to + 1, strlen(ask->to));
                memmove(ask->to + k - 1, ask->to + k, strlen(ask->to + k) + 1);
        }
        for (char *p = ask->to; *p; p++) // as DNS means it
                if (*p >= 'A' && *p <= 'Z')
                        *p = (char) (*p - 'A' + 'a');
        ask->port = (uint16_t) port;
        return valid_is(VALID_DESTINATION, ask->to) ? 0 : complain("this is no host, address or network");
}

static int parse_number(const char *text, unsigned long max, unsigned long *ret) {
        char *end;

        *ret = strtoul(text, &end, 10);
        return *text < '0' || *text > '9' || *end || *ret > max ? -EINVAL : 0;
}

static int parse_options(int argc, char **argv, AskWords *words) {
        static const struct option options[] = {
                {"reason", required_argument, NULL, 'r'}, {"protocol", required_argument, NULL, 'p'}, {"wait", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
        int c;

        words->ask.protocol = IPPROTO_TCP;
        while ((c = getopt_long(argc, argv, "r:p:w:", options, NULL)) >= 0)
                switch (c) {
                case 'r':
                        if (!valid_is(VALID_REASON, optarg))
                                return complain("the reason must be UTF-8 text without control characters, 1 to 200 bytes");
                        (void) snprintf(words->ask.reason, sizeof(words->ask.reason), "%s", optarg);
                        break;
                case 'p':
                        if (strcmp(optarg, "tcp") != 0 && strcmp(optarg, "udp") != 0)
                                return complain("the protocol must be tcp or udp");
                        words->ask.protocol = strcmp(optarg, "udp") == 0 ? IPPROTO_UDP : IPPROTO_TCP;
                        break;
                case 'w':
                        if (parse_number(optarg, WAIT_MAX, &words->wait) < 0)
                                return complain("--wait must be a number of seconds, at most a day");
                        break;
                default:
                        return usage();
                }
        return 0;
}

static int parse(int argc, char **argv, AskWords *words) {
        unsigned long number;
        int r = parse_options(argc, argv, words);

        if (r < 0)
                return r;
        if (argc - optind != 3 || strcmp(argv[optind], "ask") != 0)
                return usage();
        if (strcmp(argv[optind + 1], "status") == 0) {
                if (parse_number(argv[optind + 2], UINT32_MAX, &number) < 0 || number == 0)
                        return complain("the number of a request is missing");
                words->ask = (GuestAsk) {.header.flags = (uint32_t) number};
                return 0;
        }
        if (strcmp(argv[optind + 1], "net") != 0)
                return usage();
        if (!words->ask.reason[0])
                return complain("say why: --reason TEXT");
        return split(argv[optind + 2], &words->ask);
}

static int64_t now_ms(void) {
        return (int64_t) (clock_monotonic() / USEC_PER_MSEC);
}

static int reach(const GuestAsk *ask, int *ret) {
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ASK_SOCKET};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || send(fd, ask, sizeof(*ask), MSG_NOSIGNAL) != (ssize_t) sizeof(*ask)) {
                int r = -errno;
                if (fd >= 0)
                        (void) close(fd);
                return r;
        }
        *ret = fd;
        return 0;
}

// 0: the time is over; negative: the helper is gone.
static int receive(int fd, int64_t until, GuestAnswer *ret) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = until - now_ms();
        ssize_t n;

        if (poll(&p, 1, (int) MAX2(left, (int64_t) 0)) <= 0)
                return 0;
        n = recv(fd, ret, sizeof(*ret), MSG_TRUNC);
        if (n != sizeof(*ret) || ret->header.type != GUEST_ANSWER || ret->header.value >= _GUEST_ASK_STATE_MAX)
                return -EPIPE;
        ret->text[sizeof(ret->text) - 1] = 0;
        return 1;
}

static void tell(const GuestAnswer *answer) {
        static const char *const words[_GUEST_ASK_STATE_MAX] = {
                [GUEST_ASK_PENDING] = "waits for an operator", [GUEST_ASK_APPROVED] = "is approved", [GUEST_ASK_DENIED] = "is denied",
                [GUEST_ASK_ENDED] = "was approved and has ended", [GUEST_ASK_LAPSED] = "was not answered in time and has lapsed",
        };
        _cleanup_free_ char *text = valid_printable(answer->text);
        char until[CLOCK_TEXT_MAX];

        if (answer->header.value == GUEST_ASK_REFUSED) {
                fprintf(stderr, "hostd-guest: %s\n", text && *text ? text : "the request was not taken");
                return;
        }
        printf("request %u %s", answer->number, words[answer->header.value]);
        if (answer->header.value == GUEST_ASK_APPROVED && answer->until)
                printf(" until %.19sZ", clock_format(answer->until, until));
        printf("%s%s\n", text && *text ? ": " : "", text ?: "");
        (void) fflush(stdout);
}

// One whole conversation. -EPIPE: the helper ended it before hostd answered; there is a new one soon.
static int converse(AskWords *words, int64_t until, bool *told) {
        GuestAnswer answer;
        int fd = -EBADF, r = reach(&words->ask, &fd);

        if (r < 0)
                return r;
        while ((r = receive(fd, *told ? until : MAX2(until, now_ms() + ANSWER_WITHIN), &answer)) > 0) {
                bool pending = answer.header.value == GUEST_ASK_PENDING;
                if (answer.number)
                        words->ask = (GuestAsk) {.header = {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ASK, .size = sizeof(GuestAsk), .flags = answer.number}};
                if (!pending || !*told)
                        tell(&answer);
                *told = true;
                if (!pending)
                        r = answer.header.value == GUEST_ASK_APPROVED ? EXIT_SUCCESS : EXIT_NOT;
                else if (words->wait == 0)
                        r = EXIT_SUCCESS;
                else
                        continue;
                (void) close(fd);
                return r;
        }
        (void) close(fd);
        return r < 0 ? r : EXIT_PENDING;
}

int ask_main(int argc, char **argv) {
        AskWords words = {0};
        bool told = false;
        int64_t until;
        int r = parse(argc, argv, &words);

        if (r < 0)
                return EXIT_USAGE;
        words.ask.header = (GuestHeader) {.magic = GUEST_MAGIC, .version = GUEST_VERSION, .type = GUEST_ASK, .size = sizeof(words.ask), .flags = words.ask.header.flags};
        until = now_ms() + (int64_t) words.wait * 1000;
        while ((r = converse(&words, until, &told)) < 0 && now_ms() < until)
                (void) poll(NULL, 0, 500);
        if (r < 0) {
                fprintf(stderr, "hostd-guest: %s does not answer: %s\n", ASK_SOCKET, strerror(-r));
                return EXIT_NOT;
        }
        if (r == EXIT_PENDING)
                fputs(told ? "hostd-guest: nobody has answered yet\n" : "hostd-guest: hostd does not answer now\n", stderr);
        return r;
}
