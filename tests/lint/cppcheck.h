// SPDX-License-Identifier: GPL-2.0-or-later
// What cppcheck, which reads no system headers, must know of jansson's loops.
#define json_array_foreach(array, index, value) for (index = 0; index < json_array_size(array) && (value = json_array_get(array, index)); index++)
#define json_object_foreach(object, key, value) for (key = json_first(object, &value); key; key = json_next(object, key, &value))
