# Completes ofload-plan, ofload-batch and ofload-bench. The words are the programs' own: each prints them for --help-words.
_ofload()
{
    local program=$1 word=$2 before=$3 name kind
    local -a command=() words=()
    if [[ $word == "=" ]]; then word=; fi
    if [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi
    COMPREPLY=()
    if ((COMP_CWORD > 1)) && "$program" --help-words 2>/dev/null | grep -qx -- "${COMP_WORDS[1]} command"; then
        command=("${COMP_WORDS[1]}")
    fi
    while read -r name kind; do
        if [[ $name == "$before" && -n $kind && $kind != command && $kind != word ]]; then
            case $kind in
            file) compopt -o default 2>/dev/null ;;
            value) ;;
            *) mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$word") ;;
            esac
            return
        fi
        if [[ $kind != command ]] || ((COMP_CWORD == 1)); then words+=("$name"); fi
    done < <("$program" "${command[@]}" --help-words 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$word")
    if [[ $word != -* ]]; then compopt -o default 2>/dev/null; fi
}
complete -F _ofload ofload-plan ofload-batch ofload-bench
