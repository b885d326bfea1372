// SPDX-License-Identifier: MIT
/* Owns what json.h promises. */
#include "tools/json.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 character at text, 0 where there is none. */
static size_t utf8_len(const unsigned char *text)
{
	static const struct {
		unsigned char mask, value;
		uint32_t least;
	} forms[] = {
		{ 0x80, 0, 0 }, { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 }
	};

	for (size_t extra = 0; extra < 4; extra++) {
		uint32_t code = text[0] & (uint32_t)(unsigned char)~forms[extra].mask;

		if ((text[0] & forms[extra].mask) != forms[extra].value)
			continue;
		for (size_t i = 1; i <= extra; i++) {
			if ((text[i] & 0xc0) != 0x80)
				return 0;
			code = code << 6 | (text[i] & 0x3f);
		}
		return code < forms[extra].least || code > 0x10ffff || (code >> 11) == 0x1b
			       ? 0
			       : extra + 1;
	}
	return 0;
}

void tools_json_string(FILE *f, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	putc('"', f);
	while (*at) {
		size_t len = utf8_len(at);

		if (!len)
			fputs("\\ufffd", f);
		else if (*at < 0x20 || *at == 0x7f)
			fprintf(f, "\\u%04x", *at);
		else if (*at == '"' || *at == '\\')
			fprintf(f, "\\%c", *at);
		else
			fwrite(at, 1, len, f);
		at += len ? len : 1;
	}
	putc('"', f);
}
