// An issuer of OpenID Connect for a test: node provider.mjs, on a port that the system picks. Prints its address when it
// listens. Whoever logs in is believed to be who he says.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'tutti',
    application_type: 'native',  // its port is another one each time (RFC 8252)
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code'],
    response_types: ['code'],
    redirect_uris: ['http://127.0.0.1/callback'],
  }],
  jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: 'test' }] },
  cookies: { keys: ['a key of this test alone'] },
  pkce: { required: () => true },
  features: { deviceFlow: { enabled: true } },
  conformIdTokenClaims: false,  // the claims of the scopes stand in the token itself
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, preferred_username: id, groups: ['staff'], email: `${id}@example.org` }),
  }),
});
server.on('request', provider.callback());
console.log(issuer);
