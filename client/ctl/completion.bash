# SPDX-FileCopyrightText: The pinfeed authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What bash offers behind pinfeedctl and pinfeedd when Tab is pressed. The package bash-completion finds this file by itself;
# without it, ~/.bashrc can source it.
#
# Nothing is listed here that the programs know: commands, options and what a command's arguments are, is read from what --help
# says, of the very program on the command line, so that it cannot differ from that. The names of pipelines come from the daemon,
# which is given a second. `compgen -W` expands its words as a shell does, so what reaches it are letters, digits and _ . - only.

# The options that a text of --help explains, in lines that begin with them.
_pinfeed_options() {
    {
        "$@" --help 2>/dev/null </dev/null | sed -nE 's/^ +(-[a-z], )?(--[a-z-]+).*/\2/p'
        printf '%s\n' --help
    } | sort -u
}

# Those that have a value: it stands one space behind.
_pinfeed_options_with_value() {
    printf '%s\n' -d
    "$@" --help 2>/dev/null </dev/null | sed -nE 's/^ +(-[a-z], )?(--[a-z-]+) [A-Z].*/\2/p'
}

_pinfeed_commands() {
    "$1" --help 2>/dev/null </dev/null | sed -nE '/^commands:/,/^$/ s/^  ([a-z]+) .*/\1/p'
}

# _pinfeed_argument PINFEEDCTL COMMAND N: what a command's argument N is, PIPELINE or FILE... or the word itself; its usage
# has them behind its name, without brackets.
_pinfeed_argument() {
    "$1" "$2" --help 2>/dev/null </dev/null |
        sed -nE "1s/^Usage: pinfeedctl \[[^]]*\] $2 //p" | tr ' ' '\n' | grep -E '^[A-Za-z]' |
        awk -v n="$3" 'NR == n + 1 { print; exit } /\.\.\.$/ { print; exit }'
}

# _pinfeed_pipelines PINFEEDCTL [OPTION...]: those that the daemon has.
_pinfeed_pipelines() {
    timeout 1 "$@" pipelines --json 2>/dev/null </dev/null |
        grep -oE '\{"name":"[A-Za-z0-9_.-]+","state"' | cut -d '"' -f 4 | sort -u
}

# The words given, as candidates for the one that is being typed.
_pinfeed_offer() {
    mapfile -t COMPREPLY < <(compgen -W "$*" -- "$word")
}

# -f: files; -d: directories; -c: programs.
_pinfeed_offer_paths() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$1" -- "$word")
}

# Sets `word`, which is being typed, and `previous`, before it. Bash makes three words of --option=value.
_pinfeed_words() {
    local at=$COMP_CWORD

    word=${COMP_WORDS[at]}
    if [ "$word" = = ]; then
        word=
    elif [ "$at" -gt 1 ] && [ "${COMP_WORDS[at - 1]}" = = ]; then
        at=$((at - 1))
    fi
    previous=${COMP_WORDS[at - 1]}
}

# The value of an option. False: the word is none, or one that nobody can guess.
_pinfeed_offer_value() {
    case $previous in
    -d | --runtime-dir) _pinfeed_offer_paths -d ;;
    -c | --config | --log | --out) _pinfeed_offer_paths -f ;;
    --start) _pinfeed_offer given live ;;
    --last-batch) _pinfeed_offer short drop pad ;;
    *) return 1 ;;
    esac
}

_pinfeedd() {
    local word previous

    COMPREPLY=()
    _pinfeed_words
    _pinfeed_offer_value || _pinfeed_offer "$(_pinfeed_options "$1")"
}

# Reads the words before the one that is being typed: the command, how many arguments it has so far, the options for finding
# the daemon, and where the command that `run` is to run begins.
_pinfeed_read_line() {
    local at here options
    options=$(_pinfeed_options_with_value "$1")

    for ((at = 1; at < COMP_CWORD; at++)); do
        here=${COMP_WORDS[at]}
        if [ "$here" = -- ]; then
            foreign=$((at + 1))
            return
        elif [[ $here != -* && -z $command ]]; then
            command=$here
            options+=$'\n'$(_pinfeed_options_with_value "$1" "$here")
        elif [[ $here != -* ]]; then
            arguments=$((arguments + 1))
        elif grep -qxF -e "$here" <<<"$options"; then
            [ "${COMP_WORDS[at + 1]}" != = ] || at=$((at + 1))
            at=$((at + 1))
            case $here in
            -d | --runtime-dir) daemon=(-d "${COMP_WORDS[at]/#\~/$HOME}") ;;
            esac
        fi
    done
}

_pinfeedctl() {
    local word previous command='' arguments=0 foreign=0 daemon=() argument

    COMPREPLY=()
    _pinfeed_words
    _pinfeed_read_line "$1"
    if [ "$foreign" -gt 0 ]; then
        if [ "$COMP_CWORD" -eq "$foreign" ]; then _pinfeed_offer_paths -c; else _pinfeed_offer_paths -f; fi
    elif ! _pinfeed_offer_value; then
        if [ -z "$command" ] && [[ $word != -* ]]; then
            _pinfeed_offer "$(_pinfeed_commands "$1")"
            return
        fi
        [[ $word == -* ]] || argument=$(_pinfeed_argument "$1" "$command" "$arguments")
        case ${argument:-} in
        PIPELINE) _pinfeed_offer "$(_pinfeed_pipelines "$1" "${daemon[@]}")" ;;
        FILE...) _pinfeed_offer_paths -f ;;
        '' | COMMAND...) _pinfeed_offer "$(_pinfeed_options "$1" ${command:+"$command"})" ;;
        [a-z]*) _pinfeed_offer "$argument" ;; # what else there is, a number, say, nobody can guess
        esac
    fi
}

complete -F _pinfeedctl pinfeedctl
complete -F _pinfeedd pinfeedd
