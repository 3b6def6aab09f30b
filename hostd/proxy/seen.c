// SPDX-License-Identifier: GPL-2.0-or-later
// Seen: see seen.h. Hashes with a key of this process: nobody can look for destinations that count as one.
#include "proxy/seen.h"

#include <sodium/crypto_shorthash.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t hash_of(const char *text) {
        static uint8_t key[crypto_shorthash_KEYBYTES];
        static bool made;
        uint64_t hash = 0;

        if (!made && getrandom(key, sizeof(key), 0) == sizeof(key))
                made = true;
        (void) crypto_shorthash((unsigned char *) &hash, (const unsigned char *) text, strlen(text), key);
        return hash;
}

void seen_done(Seen *seen) {
        free(seen->list);
        *seen = (Seen) {0};
}

static void seen_forget(Seen *seen, usec_t now) {
        size_t kept = 0;

        for (size_t i = 0; i < seen->n; i++)
                if (now - seen->list[i].since < SEEN_WINDOW)
                        seen->list[kept++] = seen->list[i];
        seen->n = kept;
}

bool seen_take(Seen *seen, const char *destination, uint32_t max, usec_t now) {
        uint64_t hash = max > 0 ? hash_of(destination) : 0;

        if (max == 0) {
                seen_done(seen); // a limit that comes later counts from then on
                return true;
        }
        seen_forget(seen, now);
        for (size_t i = 0; i < seen->n; i++)
                if (seen->list[i].hash == hash)
                        return true;
        if (seen->n >= max)
                return false;
        if (seen->n == seen->room) {
                size_t room = seen->room ? seen->room * 2 : 16;
                SeenDestination *larger = reallocarray(seen->list, room, sizeof(SeenDestination));
                if (!larger)
                        return false;
                seen->list = larger;
                seen->room = room;
        }
        seen->list[seen->n++] = (SeenDestination) {hash, now};
        return true;
}
