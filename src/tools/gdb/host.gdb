# For gdb on the HOST program of a card in software: source this file, or start gdb with -x.
#
# Programs that ring doorbells by stores into a page of the card do so by a SIGSEGV that the card handles, and the card
# tries accesses that may fault. gdb would stop at each of them. With this file it passes them on, and still stops where a
# fault is the program's own: the card calls vb_fault_of_program() for those.
handle SIGSEGV SIGBUS nostop noprint pass
set breakpoint pending on
break vb_fault_of_program
commands
silent
echo A fault of the program itself:\n
# past the card's handler and the frame of the signal
up-silently 3
frame
end
set breakpoint pending auto
