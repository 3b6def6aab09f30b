// SPDX-License-Identifier: GPL-2.0-or-later
// Haproxy, responses: the program that HAProxy runs for the head of each response. A host that answers with what it was sent would give the value to the
// workload; in a header it finds "[secret NAME]".
//
// The text has ids and names, no value: it asks the map for those, for each response, and so has what the last rotation put there. A value that this very
// request took along is looked for as well, so that one that was rotated meanwhile does not come back; with Basic as it was sent, in base64.
//
// HAProxy goes on with a response when a program fails. So the last thing that this one does is to say that it has looked, and the configuration
// refuses a response without that. Each thread has its own, and none waits for another.
#include "secret/haproxy.h"

#include <string.h>

// In a header's name what is left of a value are its small letters. Of what was found everything is replaced in one go from left to right, the longest
// value first: a value may be the beginning of another, and what is put there is not looked at again.
static const char program_text[] =
        "local map = Map.new(MAP, Map._str)\n"
        "local known, plain, patterns = {}, {}, {}\n"
        "\n"
        "local function add(list, text, grant)\n"
        "    if not text or #text < MIN then return end\n"
        "    for _, p in ipairs(list) do\n"
        "        if p.text == text then return end\n"
        "    end\n"
        "    list[#list + 1] = {text = text, grant = grant}\n"
        "end\n"
        "\n"
        "local function add_value(list, txn, value, grant)\n"
        "    if not value then return end\n"
        "    add(list, value, grant)\n"
        "    add(list, value:lower(), grant)\n"
        "    add(list, txn.c:url_enc(value, 'query'), grant)\n"
        "end\n"
        "\n"
        "local function refresh(txn)\n"
        "    local same = true\n"
        "    for _, g in ipairs(GRANTS) do\n"
        "        local value = map:lookup(g.id)\n"
        "        same = same and known[g.id] == value\n"
        "        known[g.id] = value\n"
        "    end\n"
        "    if same then return end\n"
        "    plain, patterns = {}, {}\n"
        "    for _, g in ipairs(GRANTS) do\n"
        "        local value = known[g.id] and txn.c:b64dec(known[g.id])\n"
        "        if value then plain[value] = true end\n"
        "        add_value(patterns, txn, value, g)\n"
        "    end\n"
        "end\n"
        "\n"
        "local function find_patterns(txn, head)\n"
        "    local found = {}\n"
        "    local function look(list)\n"
        "        for _, p in ipairs(list) do\n"
        "            if not head or head:find(p.text, 1, true) then add(found, p.text, p.grant) end\n"
        "        end\n"
        "    end\n"
        "    refresh(txn)\n"
        "    look(patterns)\n"
        "    local used = txn:get_var('txn.used')\n"
        "    if used then\n"
        "        local sent = {}\n"
        "        for _, g in ipairs(GRANTS) do\n"
        "            if used:find(g.id, 1, true) then\n"
        "                local value = txn:get_var('txn.v_' .. g.id)\n"
        "                if value and not plain[value] then add_value(sent, txn, value, g) end\n"
        "                local basic = txn:get_var('txn.basic_' .. g.id)\n"
        "                add(sent, basic, g)\n"
        "                add_value(sent, txn, basic and basic:gsub('=*$', ''), g)\n"
        "            end\n"
        "        end\n"
        "        look(sent)\n"
        "    end\n"
        "    table.sort(found, function(a, b) return #a.text > #b.text end)\n"
        "    return found\n"
        "end\n"
        "\n"
        "local function replace(text, found, counts)\n"
        "    local out, at, ends = {}, 1, {}\n"
        "    for _, p in ipairs(found) do p.next = 0 end\n"
        "    while true do\n"
        "        local first\n"
        "        for _, p in ipairs(found) do\n"
        "            if p.next and p.next < at then p.next, ends[p] = text:find(p.text, at, true) end\n"
        "            if p.next and (not first or p.next < first.next) then first = p end\n"
        "        end\n"
        "        if not first then break end\n"
        "        out[#out + 1] = text:sub(at, first.next - 1)\n"
        "        out[#out + 1] = '[secret ' .. first.grant.secret .. ']'\n"
        "        counts[first.grant.first] = (counts[first.grant.first] or 0) + 1\n"
        "        at = ends[first] + 1\n"
        "    end\n"
        "    out[#out + 1] = text:sub(at)\n"
        "    return table.concat(out), #out > 1\n"
        "end\n"
        "\n"
        "local function replace_headers(txn, found, counts)\n"
        "    for name, values in pairs(txn.http:res_get_headers()) do\n"
        "        local named = select(2, replace(name, found, counts))\n"
        "        local changed, n = named, 0\n"
        "        while values[n] do\n"
        "            local text, is_other = replace(values[n], found, counts)\n"
        "            values[n], changed, n = text, changed or is_other, n + 1\n"
        "        end\n"
        "        if changed then txn.http:res_del_header(name) end\n"
        "        for i = 0, changed and not named and n - 1 or -1 do txn.http:res_add_header(name, values[i]) end\n"
        "    end\n"
        "end\n"
        "\n"
        "local function tell(txn, counts)\n"
        "    local text, n = '', 0\n"
        "    for id, count in pairs(counts) do\n"
        "        text, n = text .. id .. ' ' .. math.min(count, 99999) .. ' ', n + 1\n"
        "        if n == NAMES then break end\n"
        "    end\n"
        "    if n > 0 then txn:set_var('txn.redacted', text) end\n"
        "end\n"
        "\n"
        "core.register_action('redact', {'http-res'}, function(txn)\n"
        "    local found, counts = find_patterns(txn, txn.f:res_hdrs()), {}\n"
        "    if #found > 0 then replace_headers(txn, found, counts) end\n"
        "    tell(txn, counts)\n"
        "    txn.http:res_set_status(txn.f:status())\n"
        "    txn:set_var('txn.looked', 1)\n"
        "end, 0)\n";

static void write_grants(FILE *f, const HaproxyConfig *c) {
        for (size_t i = 0; i < c->n_bindings; i++) {
                size_t first = 0;
                while (strcmp(c->bindings[first]->secret, c->bindings[i]->secret) != 0)
                        first++;
                fprintf(f, "    {id = '%s', secret = '%s', first = '%s'},\n", c->bindings[i]->id, c->bindings[i]->secret, c->bindings[first]->id);
        }
}

int haproxy_program(const HaproxyConfig *config, char **ret, Error *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        bool failed;
        FILE *f;
        int r = haproxy_check(config, err);

        if (r < 0)
                return r;
        f = open_memstream(&text, &size);
        if (!f)
                return error_set_errno(err, ENOMEM, "cannot write a program");
        fprintf(f, "local MAP, MIN, NAMES = '%s', %d, %d\nlocal GRANTS = {\n", config->map, HAPROXY_REDACT_MIN, HAPROXY_REDACT_NAMES);
        write_grants(f, config);
        fprintf(f, "}\n%s", program_text);
        failed = ferror(f);
        if (fclose(f) != 0 || failed)
                return error_set_errno(err, ENOMEM, "cannot write a program");
        *ret = TAKE_PTR(text);
        return 0;
}

const char *haproxy_program_version(char ret[DIGEST_TEXT_MAX]) {
        return digest_bytes(program_text, strlen(program_text), ret);
}
