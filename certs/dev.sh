#!/bin/sh
# Certificates for development: a throwaway authority and a serving certificate signed by it.
#
#   certs/dev.sh DIR [NAME...]    writes DIR/{ca.crt,ca.key,tls.crt,tls.key}; each NAME (a DNS name or an IP
#                                 address) is added to the Service's names and to localhost
#   certs/dev.sh --install DIR    puts DIR's certificate into the cluster that kubectl talks to: the Secret, and the
#                                 authority into both webhook configurations
#
# A second run keeps the authority and renews the serving certificate.
set -eu

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
}

install_in_cluster() {
    dir=$1
    kubectl --namespace quorumgate create secret generic quorumgate-tls --type kubernetes.io/tls \
        --from-file "tls.crt=$dir/tls.crt" --from-file "tls.key=$dir/tls.key" \
        --dry-run=client --output yaml | kubectl apply --filename -
    bundle=$(base64 <"$dir/ca.crt" | tr -d '\n')
    for kind in validatingwebhookconfiguration mutatingwebhookconfiguration; do
        count=$(kubectl get "$kind" quorumgate --output 'jsonpath={.webhooks[*].name}' | wc -w)
        patch=$(seq 0 $((count - 1)) | sed "s|.*|{\"op\":\"add\",\"path\":\"/webhooks/&/clientConfig/caBundle\",\"value\":\"$bundle\"}|" | paste -sd, -)
        kubectl patch "$kind" quorumgate --type json --patch "[$patch]"
    done
}

names() {
    printf 'subjectAltName=DNS:quorumgate.quorumgate.svc,DNS:quorumgate.quorumgate.svc.cluster.local,DNS:localhost,IP:127.0.0.1'
    for name in "$@"; do
        case $name in
        *[!0-9.]*) case $name in *:*) printf ',IP:%s' "$name" ;; *) printf ',DNS:%s' "$name" ;; esac ;;
        *) printf ',IP:%s' "$name" ;;
        esac
    done
}

generate() {
    dir=$1
    shift
    umask 077
    mkdir -p "$dir"
    if [ ! -s "$dir/ca.key" ]; then
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
            -subj /CN=quorumgate-dev-ca -addext basicConstraints=critical,CA:TRUE \
            -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$dir/ca.key" -out "$dir/ca.crt"
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    {
        names "$@"
        printf '\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n'
    } >"$work/extensions"
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=quorumgate \
        -keyout "$work/tls.key" -out "$work/tls.csr"
    openssl x509 -req -in "$work/tls.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -CAcreateserial -days 90 -sha256 \
        -extfile "$work/extensions" -out "$work/tls.crt"
    mv "$work/tls.key" "$dir/tls.key"
    mv "$work/tls.crt" "$dir/tls.crt"
    openssl verify -CAfile "$dir/ca.crt" "$dir/tls.crt"
}

[ $# -ge 1 ] || usage
case $1 in
--install)
    [ $# -eq 2 ] || usage
    install_in_cluster "$2"
    ;;
-*) usage ;;
*) generate "$@" ;;
esac
