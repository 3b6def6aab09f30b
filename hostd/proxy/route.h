// SPDX-License-Identifier: GPL-2.0-or-later
// Route: where a connection may go, from the slot's rules and what its client said. Pure: the one place where the proxy decides.
#pragma once

#include "network/compile.h"

typedef enum RouteKind {
        ROUTE_DENIED,
        ROUTE_ADDRESS, // to the address that the client wanted: a rule by address allows it
        ROUTE_RESOLVE, // by its name; each address must then pass route_admits()
} RouteKind;

typedef struct RouteQuestion {
        const char *name;       // NULL: the client named none
        const Cidr *wanted;     // the address that it connected to or named; NULL: known by its name only
        uint16_t port;
        const char *method, *path; // NULL: not known
} RouteQuestion;

typedef struct Route {
        RouteKind kind;
        PolicyDecision decision;
        bool names_denied; // a rule in front of the deciding one denies names on this port: a second name on the connection could be one
} Route;

Route route_decide(const Compiled *compiled, const RouteQuestion *question);
// Whether the name may be reached at this address, and by which rule. The address that the client wanted plays no part.
Route route_admits(const Compiled *compiled, const RouteQuestion *question, const Cidr *address);
bool route_is_by_name(const Route *route); // a deciding rule has a name: it is resolved here
bool route_inspects(const Route *route);   // and one with a name wants it inspected
