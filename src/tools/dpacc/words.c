// SPDX-License-Identifier: MIT
/*
 * Lists of options inside one option, as in -devicecc-options="-O2,-g -DX='a b'".
 */
#include "dpacc.h"

#include <ctype.h>
#include <string.h>

/* Commas inside these are theirs: -Wl,--gc-sections */
static bool keeps_commas(const char *word, size_t len)
{
	return len >= 3 && word[0] == '-' && word[1] == 'W' && strchr("lap", word[2]) &&
	       (len == 3 || word[3] == ',');
}

bool words_split(const char *text, bool commas, struct list *out)
{
	char *word = mem_alloc(strlen(text) + 1);
	bool inside = false; /* a word began, even where it is empty: '' */
	char quote = 0;
	size_t len = 0;
	int open = 0; /* parentheses of a macro's arguments, whose commas are its own */

	for (;; text++) {
		bool end =
			!*text || (!quote && (isspace((unsigned char)*text) ||
					      (commas && *text == ',' && !keeps_commas(word, len) &&
					       !(open && strchr(text, ')')))));

		if (end && inside)
			list_add(out, mem_dup(word, len));
		if (!*text)
			break;
		if (end) {
			len = 0;
			open = 0;
			inside = false;
			continue;
		}
		inside = true;
		if (quote && *text == quote) {
			quote = 0;
		} else if (!quote && (*text == '\'' || *text == '"')) {
			quote = *text;
		} else {
			if (*text == '\\' && quote != '\'' && text[1])
				text++;
			open += (*text == '(') - (*text == ')' && open);
			word[len++] = *text;
		}
	}
	if (quote)
		say("a quote (%c) is not closed: %s", quote, word);
	return !quote;
}
